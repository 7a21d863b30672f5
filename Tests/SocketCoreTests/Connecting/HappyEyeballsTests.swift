import Glibc
import SocketCore
import Testing

@Suite struct HappyEyeballsTests {
    private static let refused = SystemError("connect", errno: ECONNREFUSED)

    private static func addresses(_ hosts: String...) -> [SocketEndpoint] {
        hosts.compactMap { SocketEndpoint(literal: $0, port: 80) }
    }

    @Test func theFamiliesTakeTurnsAndThePreferredOneBegins() {
        let addresses = Self.addresses("::1", "::2", "::3", "1.1.1.1", "2.2.2.2")
        let order = HappyEyeballs.order(addresses, preferring: .ipv4)
        #expect(order == Self.addresses("1.1.1.1", "::1", "2.2.2.2", "::2", "::3"))
        #expect(HappyEyeballs.order(addresses, preferring: .ipv6) == Self.addresses("::1", "1.1.1.1", "::2", "2.2.2.2", "::3"))
    }

    @Test func equalAddressesAreTriedOnce() {
        let addresses = Self.addresses("1.1.1.1", "::1", "1.1.1.1", "::1")
        #expect(HappyEyeballs.order(addresses, preferring: .ipv4) == Self.addresses("1.1.1.1", "::1"))
    }

    @Test func anotherAttemptBeginsWithEachDelay() {
        var race = HappyEyeballs(attemptCount: 3)
        #expect(race.handle(.began) == [.start(0), .armDelay])
        #expect(race.handle(.delayPassed) == [.start(1), .armDelay])
        #expect(race.handle(.delayPassed) == [.start(2), .disarmDelay])
        #expect(race.handle(.delayPassed) == [])
    }

    @Test func d5AFailureBeginsTheNextAttemptAtOnceAndTheDelayAgain() {
        var race = HappyEyeballs(attemptCount: 3)
        #expect(race.handle(.began) == [.start(0), .armDelay])
        #expect(race.handle(.failed(0, Self.refused)) == [.start(1), .armDelay])
        #expect(race.handle(.failed(1, Self.refused)) == [.start(2), .disarmDelay])
    }

    @Test func theFirstToConnectEndsTheOthers() {
        var race = HappyEyeballs(attemptCount: 4)
        _ = race.handle(.began)
        _ = race.handle(.delayPassed)
        _ = race.handle(.delayPassed)
        #expect(race.handle(.connected(1)) == [.cancel(0), .cancel(2), .disarmDelay, .win(1)])
        #expect(race.handle(.delayPassed) == [])
        #expect(race.handle(.connected(2)) == [])
        #expect(race.handle(.failed(0, Self.refused)) == [])
    }

    @Test func theRaceIsLostWithTheLastAttemptAndEveryFailureIsKept() {
        var race = HappyEyeballs(attemptCount: 3)
        _ = race.handle(.began)
        _ = race.handle(.delayPassed)
        _ = race.handle(.failed(1, SystemError("connect", errno: EHOSTUNREACH)))
        #expect(race.handle(.failed(2, Self.refused)) == [])
        #expect(race.handle(.failed(0, SystemError("connect", errno: ETIMEDOUT))) == [.giveUp])
        #expect(race.failures.map(\.number) == [1, 2, 0])
        #expect(race.failures.map(\.error.errno) == [EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT])
        #expect(race.handle(.connected(0)) == [])
    }

    @Test func whatComesTwiceOrFromAnAttemptThatNeverBeganChangesNothing() {
        var race = HappyEyeballs(attemptCount: 3)
        _ = race.handle(.began)
        #expect(race.handle(.failed(0, Self.refused)) == [.start(1), .armDelay])
        #expect(race.handle(.failed(0, Self.refused)) == [])
        #expect(race.handle(.connected(0)) == [])
        #expect(race.handle(.connected(2)) == [])
        #expect(race.failures.count == 1)
    }

    @Test func onlySoManyAttemptsAreUnderWayAtATime() {
        var race = HappyEyeballs(attemptCount: 100)
        _ = race.handle(.began)
        for _ in 1..<HappyEyeballs.limit { #expect(race.handle(.delayPassed).count == 2) }
        #expect(race.handle(.delayPassed) == [])
        #expect(race.handle(.failed(3, Self.refused)) == [.start(HappyEyeballs.limit), .armDelay])
    }

    @Test func aRaceWithoutAddressesIsLostAtOnce() {
        var race = HappyEyeballs(attemptCount: 0)
        #expect(race.handle(.began) == [.giveUp])
    }
}

import SocketCore
import Testing

@testable import AsyncSockets

/// The timers of an upgrade, with time as an input.
@Suite struct PhaseClockTests {
    private let start = Deadline.now

    private func time(_ seconds: Double) throws -> Deadline { try #require(Deadline(after: seconds, from: start)) }

    @Test func afterALateVerdictTheHandshakeHasTheTimeThatWasLeft() throws {
        let handshake = PhaseClock(.handshake(thenTrust: 5000), seconds: 10, at: start)
        #expect(handshake.deadline == (try time(10)))
        let trust = try #require(handshake.pauseForTrust(at: time(7)))
        #expect(handshake.deadline == nil)
        #expect(trust.deadline == (try time(5007)))
        #expect(trust.resumeHandshake(at: try time(1000)) === handshake)
        #expect(try #require(handshake.deadline).seconds(since: start).rounded() == 1003)
        // A second pause uses the remaining time.
        let second = try #require(handshake.pauseForTrust(at: time(1002)))
        _ = second.resumeHandshake(at: try time(2000))
        #expect(try #require(handshake.deadline).seconds(since: start).rounded() == 2001)
        #expect(handshake.seconds == 10)
    }

    @Test func aHandshakeThatIsLateAlreadyEndsAtOnceAfterTheVerdict() throws {
        let handshake = PhaseClock(.handshake(thenTrust: 60), seconds: 10, at: start)
        let trust = try #require(handshake.pauseForTrust(at: time(11)))
        _ = trust.resumeHandshake(at: try time(12))
        #expect(handshake.deadline == (try time(12)))
    }

    @Test func aHandshakeWithoutALimitHasNoneAfterTheVerdict() throws {
        for seconds in [.infinity, -1, .nan] {
            let handshake = PhaseClock(.handshake(thenTrust: 60), seconds: seconds, at: start)
            let trust = try #require(handshake.pauseForTrust(at: time(11)))
            #expect(handshake.deadline == nil)
            _ = trust.resumeHandshake(at: try time(12))
            #expect(handshake.deadline == nil, "\(seconds)")
        }
    }
}

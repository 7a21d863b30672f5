import AsyncSocketsTesting
import SocketCore
import SocketTestSupport
import Testing

@Suite struct SourceRateLimiterTests {
    private let start = Deadline.now

    private func address(_ host: String, _ port: UInt16 = 9) throws -> SocketEndpoint {
        try .loopback(host, port: port)
    }

    /// Returns the limiter's decisions on datagrams, each given by time and sender: `+` admitted, `s` too
    /// many from the source, `a` too many in total.
    private func transcript(_ limiter: inout SourceRateLimiter, _ events: [(Double, String)]) throws -> String {
        try events.map { seconds, host in
            guard let now = Deadline(after: seconds, from: start) else { return "?" }
            return switch limiter.judge(try address(host), at: now) {
            case .admitted: "+"
            case .sourceRefused: "s"
            case .allRefused: "a"
            }
        }.joined()
    }

    @Test func aSourceHasABurstAndThenItsRate() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 2, burst: 3)))
        let a = "192.0.2.1"
        #expect(try transcript(&limiter, [(0, a), (0, a), (0, a), (0, a), (0.4, a), (0.5, a), (0.6, a), (1.0, a)]) == "+++ss+s+")
        #expect(try transcript(&limiter, [(60, a), (60, a), (60, a), (60, a)]) == "+++s")
        #expect(limiter.refusedCount == 4)
    }

    @Test func oneSourceDoesNotTakeFromAnother() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 1)))
        #expect(
            try transcript(&limiter, [(0, "192.0.2.1"), (0, "192.0.2.1"), (0, "192.0.2.2"), (0, "::1"), (0, "::1")]) == "+s++s")
    }

    /// A forgotten source does not share a bucket with the source that replaced it.
    @Test func aForgottenSourceDoesNotUseTheBucketOfItsSuccessor() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 1), maximumSources: 1))
        let (a, b) = ("192.0.2.1", "192.0.2.2")
        #expect(try transcript(&limiter, [(0, a), (10, b), (10, a), (10, b)]) == "++" + "+s")
        #expect(limiter.trackedCount == 1)
    }

    @Test func allTogetherHaveALimitToo() throws {
        var limiter = SourceRateLimiter(
            .init(perSource: .init(perSecond: 1, burst: 2), total: .init(perSecond: 1, burst: 3)))
        let events: [(Double, String)] = [(0, "10.0.0.1"), (0, "10.0.0.1"), (0, "10.0.0.1"), (0, "10.0.0.2"), (0, "10.0.0.3")]
        #expect(try transcript(&limiter, events) == "++s+a")
        // Datagrams over the total limit do not count for their source.
        #expect(try transcript(&limiter, [(10, "10.0.0.3"), (10, "10.0.0.3"), (10, "10.0.0.3")]) == "++s")
        #expect(limiter.refusedCount == 3)
    }

    @Test func withoutRatesEverythingIsAdmitted() throws {
        var limiter = SourceRateLimiter(.init(perSource: nil))
        #expect(try transcript(&limiter, (0..<1000).map { _ in (0, "192.0.2.1") }) == String(repeating: "+", count: 1000))
        #expect(limiter.trackedCount == 0)
    }

    @Test func aSourceOfIPv6IsANetwork() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 1)))
        let events = ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "2001:db8:0:1:8000::"]
        #expect(try transcript(&limiter, events.map { (0, $0) }) == "+s+s")
        #expect(try transcript(&limiter, [(0, "192.0.2.1"), (0, "::ffff:192.0.2.1"), (0, "::ffff:192.0.2.2")]) == "+s+")
    }

    @Test func thePortDoesNotMakeAnotherSource() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 1)))
        #expect(try limiter.judge(address("192.0.2.1", 1), at: start) == .admitted)
        #expect(try limiter.judge(address("192.0.2.1", 2), at: start) == .sourceRefused)
    }

    /// An attacker forges many sources, so that the table evicts a source that has sent too many.
    @Test func inventedSourcesDoNotLiftTheLimitOfAnother() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 2), maximumSources: 16))
        #expect(try transcript(&limiter, [(0, "192.0.2.1"), (0, "192.0.2.1"), (0, "192.0.2.1")]) == "++s")
        for step in 0..<20_000 {
            _ = try limiter.judge(address("10.\(step >> 16 & 255).\(step >> 8 & 255).\(step & 255)"), at: start)
        }
        #expect(limiter.trackedCount == 16)
        #expect(try transcript(&limiter, [(0.5, "192.0.2.1"), (1, "192.0.2.1"), (1, "192.0.2.1")]) == "s+s")
    }

    /// A source that shares a bucket while the table is full does not get a second burst when it gets its own
    /// entry.
    @Test func movingIntoTheTableBringsNoSecondBurst() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 4), maximumSources: 1))
        #expect(try transcript(&limiter, [(0, "10.0.0.1")]) == "+")
        #expect(try transcript(&limiter, (0..<5).map { _ in (0.5, "192.0.2.1") }) == "++++s")
        // The only entry is free from 1.0 on.
        #expect(try transcript(&limiter, [(1.4, "192.0.2.1"), (1.5, "192.0.2.1"), (1.5, "192.0.2.1")]) == "s+s")
    }

    /// The clock hand gives up after a few entries if all are busy.
    @Test func aFullTableForgetsThoseWithAWholeBurst() throws {
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 1, burst: 1), maximumSources: 4))
        #expect(try transcript(&limiter, (1...4).map { (0, "10.0.0.\($0)") }) == "++++")
        #expect(try transcript(&limiter, (5...8).map { (2, "10.0.0.\($0)") }) == "++++")
        #expect(limiter.trackedCount == 4)
        #expect(try transcript(&limiter, (5...8).map { (2, "10.0.0.\($0)") }) == "ssss")
    }

    @Test func theSlowestRateAndTheLongestBurstDoNotOverflow() throws {
        var limiter = SourceRateLimiter(
            .init(perSource: .init(perSecond: .leastNonzeroMagnitude, burst: .max), total: .init(perSecond: 1e9, burst: .max)))
        #expect(try transcript(&limiter, [(0, "192.0.2.1"), (1e8, "192.0.2.1")]).first == "+")
        var fast = SourceRateLimiter(.init(perSource: .init(perSecond: 1e9, burst: 1)))
        #expect(try transcript(&fast, [(0, "192.0.2.1"), (1, "192.0.2.1")]) == "++")
    }

    /// Compares with a model that counts tokens and never evicts a source.
    @Test func randomSourcesGetWhatAModelGivesThem() throws {
        let seed = Seeds.first("LIMITER_SEED")
        var random = SeededGenerator(seed: seed)
        var limiter = SourceRateLimiter(.init(perSource: .init(perSecond: 10, burst: 5), maximumSources: 1000))
        var full: [String: Double] = [:]
        var now = 0.0
        for _ in 0..<20_000 {
            // Quarters of a millisecond are exact in binary, and so is a tenth of a second in nanoseconds.
            now += Double(Int.random(in: 0...8, using: &random)) / 1024
            let host = "10.0.0.\(Int.random(in: 0..<16, using: &random))"
            let time = (now * 1_000_000_000).rounded(.down)
            let next = max(full[host] ?? 0, time) + 100_000_000
            let isAdmitted = next <= time + 500_000_000
            if isAdmitted { full[host] = next }
            #expect(try transcript(&limiter, [(now, host)]) == (isAdmitted ? "+" : "s"), "LIMITER_SEED=\(seed)")
        }
    }
}

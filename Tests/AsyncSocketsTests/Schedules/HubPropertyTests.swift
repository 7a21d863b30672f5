import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Arrivals, replacements, refusals, restarts at the limit, timeouts, closes and shutdowns. After each step
/// the counts of a listener agree with a model, and finally no handshake or peer is left.
///
/// Each fixed schedule covers one rule of the hub. Other orders of the same steps are random: `HUB_SEED` is
/// the first seed of `HUB_SCHEDULES`, 4 by default.
@Suite(.timeLimit(.patient)) struct HubPropertyTests {
    @Test func theCountsAgreeWithTheModel() async throws {
        let count = Seeds.count("HUB_SCHEDULES", 4)
        for seed in Seeds.first("HUB_SEED")..<Seeds.first("HUB_SEED") + count {
            try await check(HubSchedule(seed: seed), "HUB_SEED=\(seed)")
        }
    }

    @Test(arguments: HubSchedule.Plan.fixed) func theCountsOfFixedSchedulesAgreeWithTheModel(_ plan: HubSchedule.Plan)
        async throws
    {
        try await check(HubSchedule(plan), plan.description)
    }

    private func check(_ schedule: HubSchedule, _ name: String) async throws {
        do {
            try await schedule.run()
        } catch {
            Issue.record("\(name): \(error)\n\(schedule.log.joined(separator: "; "))")
        }
    }
}

extension HubSchedule {
    /// A fixed schedule.
    struct Plan: Sendable, CustomStringConvertible {
        let description: String
        let maximumPeers: Int
        let maximumHandshakes: Int
        let steps: [Step]

        init(_ description: String, peers: Int = 8, handshakes: Int = 6, _ steps: [Step]) {
            (self.description, self.steps) = (description, steps)
            (maximumPeers, maximumHandshakes) = (peers, handshakes)
        }

        // Positions count from the oldest client of a kind.
        static let fixed = [
            Plan(
                "among equal sources the oldest handshake is replaced", handshakes: 2,
                [.begin(0), .begin(1), .begin(2), .begin(0), .begin(1), .begin(2)]),
            Plan(
                "the oldest handshake of the largest source is replaced", handshakes: 4,
                [
                    .begin(0), .begin(1), .begin(1), .begin(2), .begin(0), .begin(1), .begin(1), .begin(1), .begin(1), .begin(2),
                    .begin(2), .begin(2), .begin(2), .begin(0),
                ]),
            Plan(
                "handshakes that finish late make room", handshakes: 2,
                [
                    .begin(0), .begin(1), .finish(0), .begin(2), .finish(1), .begin(0), .finish(0), .finish(0), .begin(1),
                    .begin(1),
                ]),
            Plan(
                "established peers are not replaced", peers: 3,
                [
                    .establish(0), .establish(1), .establish(2), .begin(0), .establish(0), .leave(1), .begin(0), .begin(1),
                    .begin(1),
                    .leave(0), .begin(2), .establish(0), .leave(1), .leave(0), .begin(1),
                ]),
            Plan(
                "a closed peer makes room for exactly one client", peers: 2,
                [
                    .establish(0), .establish(1), .leave(0), .establish(2), .establish(0), .leave(1), .leave(0), .begin(0),
                    .begin(1),
                ]),
            Plan(
                "lower limits replace nothing", peers: 8, handshakes: 4,
                [
                    .begin(0), .begin(1), .begin(2), .begin(0), .handshakeLimit(2), .begin(1), .restart(0), .establish(1),
                    .handshakeLimit(3), .begin(1), .restart(2), .handshakeLimit(4), .begin(1), .handshakeLimit(6), .begin(1),
                    .peerLimit(2), .begin(2), .restart(1), .peerLimit(5), .begin(2), .peerLimit(6), .begin(2),
                ]),
            Plan(
                "a source at its limit replaces only its own handshakes", peers: 5,
                [
                    .begin(1), .begin(0), .establish(0), .establish(0), .begin(0), .begin(0), .finish(1), .finish(1), .begin(0),
                    .establish(0), .restartEstablished(0), .begin(0), .establish(1), .sourceLimit(5), .begin(0), .sourceLimit(1),
                    .begin(0), .begin(1), .leave(0), .begin(2), .restart(0),
                ]),
            Plan(
                "a client that restarts replaces only itself", peers: 2, handshakes: 2,
                [
                    .begin(0), .begin(1), .restart(0), .restart(1), .restart(0), .repeatHello(0), .repeatFirstHello(0),
                    .repeatFirstHello(1), .repeatHello(1), .begin(2), .finish(1), .restart(0), .begin(0),
                ]),
            Plan(
                "an established client that restarts replaces a handshake", peers: 3, handshakes: 1,
                [
                    .establish(0), .establish(1), .restartEstablished(0), .begin(2), .restartEstablished(0), .repeatFirstHello(0),
                    .finish(0), .repeatFirstEstablishedHello(0), .repeatEstablishedHello(0), .establish(2), .leave(0),
                ]),
            Plan(
                "a replaced client that repeats itself is a stranger", peers: 3, handshakes: 1,
                [
                    .begin(0), .begin(1), .return, .return, .establish(2), .return, .leave(0), .return, .peerLimit(1),
                    .restart(0), .finish(0),
                    .return,
                ]),
            Plan(
                "a handshake that times out makes room", handshakes: 2,
                [.begin(0), .timeOut(1), .begin(1), .timeOut(1), .timeOut(2), .begin(0), .return, .finish(0), .begin(2)]),
            Plan(
                "a stopped listener serves its peers and refuses strangers", peers: 8,
                [
                    .establish(0), .begin(1), .begin(2), .stop, .begin(0), .restart(0), .restartEstablished(0), .repeatHello(1),
                    .finish(0), .leave(0), .leave(0), .begin(1), .establish(2), .finish(0), .leave(0),
                ]),
            Plan("a listener that stops cuts handshakes", [.begin(0), .begin(1), .establish(2), .stop, .begin(0)]),
            Plan(
                "new settings change no counts", handshakes: 2,
                [.begin(0), .reload, .begin(1), .finish(0), .reload, .restart(0), .restartEstablished(0), .begin(2), .leave(0)]),
            Plan(
                "strangers without a cookie are not counted", handshakes: 1,
                [.noise, .helloWithoutCookie, .begin(0), .noise, .helloWithoutCookie, .establish(1), .noise, .begin(2)]),
        ]
    }
}

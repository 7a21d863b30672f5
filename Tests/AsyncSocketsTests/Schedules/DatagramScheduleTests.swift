import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Compares random operations in both styles at the same time with a model. Each send completes once, each
/// datagram arrives once and in order, and the end is reported once and last.
///
/// Each fixed schedule covers one order of these calls, with each kind of delegate and filter. Other orders
/// are random: `DATAGRAM_SCHEDULES` is the number of schedules, 300 by default; `DATAGRAM_SEED` is the first
/// seed.
@Suite(.timeLimit(.minutes(60))) struct DatagramScheduleTests {
    @Test func everyScheduleKeepsThePromises() async throws {
        let first = Seeds.first("DATAGRAM_SEED")
        for seed in first..<first + Seeds.count("DATAGRAM_SCHEDULES", 300) {
            guard await check(try DatagramSchedule(seed: seed), "DATAGRAM_SEED=\(seed)") else { return }
        }
    }

    @Test(arguments: DatagramSchedule.Plan.fixed)
    func fixedSchedulesKeepThePromises(_ plan: DatagramSchedule.Plan) async throws {
        for style in 0..<3 {
            for filter in DatagramSchedule.Filter.allCases {
                let schedule = try DatagramSchedule(plan, style: style, filter)
                guard await check(schedule, "\(plan), style \(style), filter \(filter)") else { return }
            }
        }
    }

    private func check(_ schedule: DatagramSchedule, _ name: String) async -> Bool {
        do {
            try await schedule.run()
            return true
        } catch {
            Issue.record("\(name): \(error)\n\(schedule.log.joined(separator: "; "))")
            return false
        }
    }
}

extension DatagramSchedule {
    /// A fixed schedule.
    struct Plan: Sendable, CustomStringConvertible {
        let description: String
        let steps: [Step]

        init(_ description: String, _ steps: [Step]...) { (self.description, self.steps) = (description, Array(steps.joined())) }

        private static let sends: [Step] = [
            .sendByDelegate(4), .sendByTask(1_500), .sendByTask(4), .sendByDelegate(700), .sendByDelegate(1_500),
        ]
        private static let arrivals: [Step] = [.sendFromPeer([4, 100, 1_500, 4, 5, 6]), .sendFromPeer([1_000])]
        private static let reads: [Step] = [.receive(isShort: false), .receive(isShort: true), .receive(isShort: false)]

        static let fixed: [Plan] = [
            Plan("no calls", []),
            Plan("sends open the socket", sends, arrivals),
            Plan("a bound socket sends and receives", [.bind], sends, arrivals, sends, reads, [.bind]),
            Plan("a delegate receives everything", [.bind, .beginReceiving], arrivals, sends, arrivals, [.beginReceiving]),
            Plan(
                "a delegate receives one at a time",
                [.bind, .receiveOnce], arrivals, [.receiveOnce, .receiveOnce], sends, [.receiveOnce], arrivals),
            Plan(
                "a delegate pauses",
                [.bind, .beginReceiving], arrivals, [.pause], arrivals, [.receiveOnce], arrivals, [.pause]),
            Plan("tasks receive before datagrams arrive", [.bind], reads, arrivals, reads, arrivals, [.collect], sends),
            Plan("tasks receive after datagrams arrive", [.bind], arrivals, reads, [.collect], arrivals, reads),
            Plan(
                "receives are cancelled",
                [.bind], reads, [.cancelReceive(0), .cancelReceive(2)], arrivals, reads, [.cancelReceive(1), .collect], arrivals),
            Plan(
                "tasks and a delegate receive",
                [.bind, .beginReceiving], reads, arrivals, [.pause], reads, arrivals, [.beginReceiving, .collect], arrivals
            ),
            Plan("a connected socket", [.connect], sends, arrivals, reads, [.connect], sends),
            Plan(
                "a socket dissolves its association and connects again",
                sends, [.connect], sends, arrivals, [.dissolveAssociation], sends, [.connect], sends, arrivals,
                [.dissolveAssociation]),
            Plan(
                "a bound socket connects",
                [.bind, .beginReceiving], arrivals, [.connect], arrivals, sends, [.dissolveAssociation], arrivals),
            Plan(
                "groups are joined in every state",
                [.join(1), .bind, .join(1), .join(2)], arrivals, [.connect, .join(3)], sends, [.dissolveAssociation, .join(3)]),
            Plan("a socket closes while it sends", [.bind], sends, [.disconnect], sends, [.bind, .connect, .join(1)], reads),
            Plan("a socket closes after sending", [.bind], sends, [.disconnectAfterSending], sends, arrivals),
            Plan("a socket closes while tasks receive", [.bind], reads, [.disconnect, .collect], reads),
            Plan("a socket closes with unread datagrams", [.bind, .receiveOnce], arrivals, [.disconnect, .beginReceiving]),
            Plan(
                "a connected socket closes", [.connect], sends, arrivals, reads, [.disconnectAfterSending, .dissolveAssociation],
                sends),
            Plan("a socket closes twice", [.bind], sends, [.disconnectAfterSending, .disconnect, .disconnectAfterSending]),
        ]
    }
}

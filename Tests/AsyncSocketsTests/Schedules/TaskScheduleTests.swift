import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Most operations of a task on its loop are served from memory without suspending. Whatever the task does
/// in between, it reads each byte that its peer has sent once and in order, and so does its peer.
///
/// Each fixed schedule covers one rule. Other orders are random: `TASK_SCHEDULES` is the number of
/// schedules, 100 by default; `TASK_SEED` is the first seed.
@Suite(.timeLimit(.patient)) struct TaskScheduleTests {
    @Test func everyScheduleKeepsTheStreams() async throws {
        let first = Seeds.first("TASK_SEED")
        for seed in first..<first + Seeds.count("TASK_SCHEDULES", 100) {
            guard await check(TaskSchedule(seed: seed), "TASK_SEED=\(seed)") else { return }
        }
    }

    @Test(arguments: TaskSchedule.Plan.fixed, TaskSchedule.Kind.allCases)
    func fixedSchedulesKeepTheStreams(_ plan: TaskSchedule.Plan, _ kind: TaskSchedule.Kind) async throws {
        _ = await check(TaskSchedule(plan.steps, kind), "\(plan), \(kind)")
    }

    private func check(_ schedule: TaskSchedule, _ name: String) async -> Bool {
        do {
            try await schedule.run()
            return true
        } catch {
            Issue.record("\(name): \(error)")
            return false
        }
    }
}

extension TaskSchedule {
    /// A fixed schedule.
    struct Plan: Sendable, CustomStringConvertible {
        let description: String
        let steps: [Step]

        init(_ description: String, _ steps: [Step]) { (self.description, self.steps) = (description, steps) }

        private static let echo: [Step] = [.read(.line), .write(.line(40))]

        static let fixed = [
            Plan(
                "an upgrade in the middle of a batch", [.read(.lines(3)), .write(.line(1)), .write(.line(1)), .startTLS] + echo),
            Plan(
                "cancellation between two buffered lines",
                [.read(.cancelAfter(1)), .read(.cancelAfter(4))] + echo + [.read(.cancel(yields: 0)), .read(.cancel(yields: 3))]
                    + echo),
            Plan(
                "a loop is left early and other reads follow",
                [.read(.lines(2)), .read(.exactly(7)), .read(.throughLineFeed), .read(.some(50)), .read(.lines(1)), .read(.span)]
                    + echo),
            Plan("a deadline in a batch", echo + [.read(.expire), .write(.line(3)), .read(.expire)] + echo),
            Plan(
                "other threads write meanwhile",
                [.write(.elsewhere(50))] + echo + echo + [.write(.elsewhere(50)), .write(.bytes(5_000))] + echo + [.write(.flush)]
                    + echo),
            Plan("back-pressure", echo + [.write(.much), .read(.lines(2)), .write(.elsewhere(10)), .write(.much)] + echo),
            Plan(
                "a task that yields between small writes",
                [.write(.line(1)), .write(.line(2)), .write(.yield), .write(.line(3)), .write(.flush), .write(.line(4))]),
        ]
    }
}

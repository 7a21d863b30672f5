import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Waiters for the connection and for its end, each with its own timeout.
@Suite struct LifecycleWaitersTests {
    private let patient = CountingWaiter<Void>()
    private let slow = CountingWaiter<Void>(timeout: 7200, .writeTimeout)
    private let quick = CountingWaiter<Void>(timeout: 3600, .connectTimeout)
    private let start = Deadline.now

    private func time(_ seconds: Double) throws -> Deadline {
        try #require(Deadline(after: seconds, from: start))
    }

    private var waiters: LifecycleWaiters {
        var waiters = LifecycleWaiters()
        waiters.add(connected: patient)
        waiters.add(ended: slow)
        waiters.add(connected: quick)
        return waiters
    }

    /// Each times out at its own time, whatever the order.
    @Test func eachIsLateAtItsOwnTime() throws {
        var waiters = waiters
        #expect(waiters.deadline == quick.deadline)
        let early = waiters.late(at: try time(3599))
        #expect(early == nil)
        let (first, error) = try #require(waiters.late(at: try time(3605)))
        let isQuick = first === quick
        #expect(isQuick && (error as? AsyncSocketError)?.code == .connectTimeout)
        waiters.remove(first)?(error)
        #expect(quick.outcomes == [.failed(.connectTimeout)] && patient.outcomes.isEmpty)
        let between = waiters.late(at: try time(7199))
        #expect(between == nil && waiters.deadline == slow.deadline)
        let (second, _) = try #require(waiters.late(at: try time(7205)))
        let isSlow = second === slow
        #expect(isSlow)
        waiters.remove(second)?(error)
        let last = waiters.late(at: try time(1_000_000))
        #expect(last == nil && waiters.deadline == nil && !waiters.isEmpty && patient.outcomes.isEmpty)
        // It is no longer waiting here.
        waiters.remove(second)?(error)
        #expect(slow.outcomes.count == 1)
    }

    @Test func theEndAnswersEachOnce() {
        var waiters = waiters
        for _ in 0..<2 { waiters.answerEnd(AsyncSocketError.closing(.close)) }
        #expect(waiters.isEmpty && waiters.deadline == nil)
        #expect(patient.outcomes == [.failed(.closed)] && quick.outcomes == [.failed(.closed)])
        #expect(slow.outcomes == [.served])
    }

    /// A step completes only its own waiters, oldest first.
    @Test func aStepAnswersOneWhoWaitsForIt() {
        var waiters = waiters
        var answers = [waiters.answerConnected()]
        #expect(patient.outcomes == [.served] && quick.outcomes.isEmpty)
        for _ in 0..<2 { answers.append(waiters.answerConnected()) }
        #expect(answers == [true, true, false] && quick.outcomes == [.served])
        #expect(slow.outcomes.isEmpty && !waiters.isEmpty)
    }
}

import SocketBuffers
import SocketTestSupport
import Testing

@testable import SocketCore

/// The memory of a loop's table after many handlers were added and removed.
@Suite struct LoopTableSizeTests {
    private final class Handler: EventHandler {
        private let token: any AnyObject & Sendable

        init(_ tally: Tally) { token = tally.token() }

        func handle(_ events: LoopEvents) { withExtendedLifetime(token) {} }
    }

    /// What happens to a handler's deadline.
    enum End: CaseIterable {
        case removedBefore, replaced, withdrawn, expired, resumed, resumedAndRemoved
    }

    private let tally = Tally()
    private let start = Deadline.now

    private func time(_ seconds: Double) throws -> Deadline { try #require(Deadline(after: seconds, from: start)) }

    /// Adds a handler that has a deadline, lets it end, and removes it.
    private func visit(_ table: inout LoopTable, _ end: End) throws {
        let registration = table.insert(Handler(tally))
        table.setDeadline(try time(3600), of: registration)
        var ready = Ring<LoopTable.Ready>()
        switch end {
        case .removedBefore: break
        case .replaced: table.setDeadline(try time(7200), of: registration)
        case .withdrawn: table.setDeadline(nil, of: registration)
        case .expired:
            table.takeExpired(at: try time(3601), into: &ready)
            #expect(ready.popFirst()?.events == .deadline)
        case .resumed, .resumedAndRemoved:
            let isFirst = table.resume(registration)
            #expect(isFirst)
            if end == .resumed { table.takeResumed(into: &ready) }
        }
        #expect(table.remove(registration) != nil)
        if end == .resumedAndRemoved { table.takeResumed(into: &ready) }
        ready.removeAll()
    }

    @Test(arguments: End.allCases) func handlersThatComeAndGoLeaveNothing(_ end: End) throws {
        var table = LoopTable()
        for _ in 0..<100 { try visit(&table, end) }
        let (before, limit) = (Contents(of: table), table.deadlineCount + 64)
        #expect(before["slots"] == 1)
        for _ in 0..<10_000 { try visit(&table, end) }
        #expect(table.registrationCount == 0 && table.deadlineCount <= limit && !table.hasResumed)
        // Stale deadlines are dropped together, so their number varies.
        #expect(Contents(of: table).without("deadlines") == before.without("deadlines"))
        #expect(tally.alive == 0)
    }

    /// All have a distant deadline and a pending turn, and are removed before either.
    @Test func handlersThatLeaveTogetherLeaveNothing() throws {
        var table = LoopTable()
        var registrations: [LoopRegistration] = []
        for _ in 0..<10_000 {
            let registration = table.insert(Handler(tally))
            table.setDeadline(try time(3600), of: registration)
            _ = table.resume(registration)
            registrations.append(registration)
        }
        #expect(tally.alive == 10_000 && table.deadlineCount == 10_000)
        for registration in registrations { _ = table.remove(registration) }
        #expect(tally.alive == 0 && table.registrationCount == 0 && table.deadlineCount <= 64)
        var ready = Ring<LoopTable.Ready>()
        table.takeResumed(into: &ready)
        #expect(ready.isEmpty && !table.hasResumed)
        let kept = Contents(of: table)
        #expect(kept["slots"] == kept["freeIndices"] && kept["slots[].handler"] == 0 && kept["slots[].deadline"] == 0)
        // The same places are used again.
        for _ in 0..<10_000 { _ = table.insert(Handler(tally)) }
        #expect(Contents(of: table)["slots"] == 10_000)
    }

    @Test func theWatchForgetsLoopsThatAreGone() throws {
        let watch = LoopWatch()
        let lasting = try LoopRunner()
        watch.add(lasting)
        let before = Contents(of: watch)
        #expect(before["state.watched"] == 1)
        for _ in 0..<200 {
            let runner = try LoopRunner()
            watch.add(runner)
            watch.forget(runner)
        }
        #expect(Contents(of: watch) == before)
        watch.forget(lasting)
        #expect(Contents(of: watch)["state.watched"] == 0)
    }
}

import SocketBuffers
import Synchronization
import Testing

@testable import AsyncSockets

/// Events that wait for a delegate queue, without an actual queue. The tests run the blocks.
@Suite struct EventBacklogTests {
    /// An event with a name, or progress of an operation.
    private enum Note: SocketEvent, Equatable, ExpressibleByStringLiteral {
        case event(String)
        case progress(String, Int)

        init(stringLiteral name: String) { self = .event(name) }

        var isEnd: Bool { false }
        var isProgress: Bool { if case .progress = self { true } else { false } }

        mutating func absorb(_ next: Note) -> Bool {
            guard case .progress(let name, let count) = self, case .progress(name, let more) = next else { return false }
            self = .progress(name, count + more)
            return true
        }
    }

    private let backlog = EventBacklog<Note>()

    /// Adds events. Returns the ticket of a block for them, if one is needed.
    private func add(_ notes: Note...) -> Int? {
        var ring = Ring<Note>()
        for note in notes { ring.append(note) }
        return backlog.take(&ring, isOnLoop: false)
    }

    // MARK: - Progress

    @Test func progressIsAddedToItsOwnThatWaits() throws {
        let ticket = try #require(add(.progress("read", 1), .progress("read", 2)))
        // Progress in the other direction may have been added in between.
        for _ in 0..<100 { #expect(add(.progress("write", 10), .progress("read", 1)) != ticket) }
        #expect(backlog.begin(upTo: 2) == [.progress("read", 103), .progress("write", 1000)])
    }

    @Test func progressDoesNotOvertakeWhatCameBeforeIt() {
        let notes: [Note] = [
            .progress("read", 1), "written", .progress("read", 2), .progress("write", 3), "x", .progress("read", 4),
        ]
        for note in notes { #expect(add(note) != nil) }
        #expect(backlog.begin(upTo: notes.count) == notes)
    }

    // MARK: - Blocks

    @Test func aBlockTakesNothingThatCameAfterIt() {
        #expect(add("a", "b") == 2)
        #expect(add("c") == 3)
        #expect(backlog.begin(upTo: 2) == ["a", "b"])
        #expect(backlog.next() == nil)
        #expect(backlog.begin(upTo: 3) == ["c"])
        #expect(backlog.next() == nil)
        #expect(backlog.begin(upTo: 3) == nil)
    }

    /// Blocks on two queues: the block that is delivering also delivers the events of the others.
    @Test func oneBlockHasEventsAtATime() {
        #expect(add("a") == 1)
        #expect(add("b") == 2)
        #expect(add("c") == 3)
        #expect(backlog.begin(upTo: 1) == ["a"])
        #expect(backlog.begin(upTo: 3) == nil)
        // An older block that runs later has no effect.
        #expect(backlog.begin(upTo: 2) == nil)
        #expect(backlog.next() == ["b", "c"])
        #expect(backlog.next() == nil)
    }

    @Test func theLoopPutsOneBlockForItsBatch() {
        var ring = Ring<Note>()
        ring.append("a")
        #expect(backlog.take(&ring, isOnLoop: true) == 1)
        #expect(add("b") == nil)
        #expect(backlog.takeTicket() == 2)
        #expect(add("c") == 3)
        #expect(backlog.begin(upTo: 2) == ["a", "b"])
    }

    /// The delegate has moved to another queue.
    @Test func whatIsPutBackKeepsItsPlace() throws {
        #expect(add("a", "b", "c") == 3)
        let taken = try #require(backlog.begin(upTo: 3))
        #expect(add("d") == 4)
        backlog.putBack(taken[1...])
        // The block for the later event runs first.
        #expect(backlog.begin(upTo: 4) == nil)
        #expect(backlog.next() == ["b", "c", "d"])
        #expect(backlog.next() == nil)
        #expect(add("e") == 5)
        #expect(backlog.begin(upTo: 5) == ["e"])
    }

    // MARK: - Waiting for the backlog

    @Test func itIsBusyUntilAllIsDelivered() {
        let calls = Atomic(0)
        let isIdle = { backlog.isIdle { calls.add(1, ordering: .relaxed) } }
        #expect(isIdle())
        backlog.finish()
        #expect(calls.load(ordering: .relaxed) == 0)
        #expect(add("a") == 1)
        // The event is pending, and then being delivered.
        #expect(!isIdle())
        #expect(backlog.begin(upTo: 1) == ["a"])
        #expect(!isIdle())
        #expect(add("b") == 2)
        #expect(backlog.next() == nil)
        backlog.finish()
        #expect(calls.load(ordering: .relaxed) == 0)
        #expect(!isIdle())
        #expect(backlog.begin(upTo: 2) == ["b"])
        #expect(backlog.next() == nil)
        backlog.finish()
        backlog.finish()
        #expect(calls.load(ordering: .relaxed) == 1)
        #expect(isIdle())
    }
}

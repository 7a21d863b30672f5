import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import AsyncSockets

/// The queue between a listener and the tasks that request sockets from it.
@Suite(.timeLimit(.patient), .ownThreads) struct ReadySocketTests {
    private let queue = SocketQueue()

    /// Starts a task that waits for room. Returns whether it has found room.
    private func ask() -> Locked<Bool> {
        let hasRoom = Locked(false)
        Task.immediate { [queue] in
            await queue.room()
            hasRoom.withLock { $0 = true }
        }
        return hasRoom
    }

    private func expectRoom(_ hasRoom: Locked<Bool>) async throws {
        try await eventually("there is room") { hasRoom.withLock { $0 } }
    }

    private func fill(ready: Int, expected: Int) {
        for _ in 0..<ready { queue.put(AsyncSocket()) }
        queue.noteExpected(expected)
    }

    /// Sixteen in total, however many of them are ready. A socket that is taken makes room, and so does an
    /// expected one that fails.
    @Test(arguments: 0...16) func sixteenAreAcceptedAhead(ready: Int) async throws {
        fill(ready: ready, expected: max(15 - ready, 0))
        if ready < 16 {
            try await expectRoom(ask())
            queue.noteExpected(1)
        }
        let hasRoom = ask()
        #expect(!hasRoom.withLock { $0 })
        if ready > 0 { #expect(try await queue.next() != nil) } else { queue.noteExpected(-1) }
        try await expectRoom(hasRoom)
    }

    /// The expected socket becomes ready, and counts once.
    @Test func whatWasExpectedAndIsReadyCountsOnce() async throws {
        fill(ready: 15, expected: 1)
        queue.put(AsyncSocket())
        queue.noteExpected(-1)
        let hasRoom = ask()
        #expect(!hasRoom.withLock { $0 })
        for _ in 0..<16 { #expect(try await queue.next() != nil) }
        try await expectRoom(hasRoom)
    }

    @Test func afterAStopNothingWaitsForRoom() async throws {
        fill(ready: 10, expected: 10)
        let hasRoom = ask()
        #expect(!hasRoom.withLock { $0 })
        queue.stop()
        try await expectRoom(hasRoom)
        try await expectRoom(ask())
    }

    /// Removing some does not change the order of the others.
    @Test func theSocketsComeInTheOrderInWhichTheyWereReady() async throws {
        let sockets = (0..<6).map { _ in AsyncSocket() }
        for socket in sockets[..<3] { queue.put(socket) }
        #expect(try await queue.next() === sockets[0])
        for socket in sockets[3...] { queue.put(socket) }
        for socket in sockets[1...] { #expect(try await queue.next() === socket) }
    }

    /// Ready sockets are returned before the end.
    @Test func theEndComesBehindTheLastSocket() async throws {
        fill(ready: 2, expected: 0)
        queue.end()
        for _ in 0..<2 { #expect(try await queue.next() != nil) }
        for _ in 0..<2 { #expect(try await queue.next() == nil) }
    }

    // MARK: - Cancellation

    /// The socket goes to another waiting task.
    @Test func aCancelledTaskGetsNoSocket() async throws {
        let tasks = (0..<3).map { _ in Task.immediate { [queue] in try await queue.next() } }
        for task in [tasks[0], tasks[2]] {
            task.cancel()
            #expect(await task.outcome == .cancelled)
        }
        let sockets = [AsyncSocket(), AsyncSocket()]
        for socket in sockets { queue.put(socket) }
        #expect(try await tasks[1].value === sockets[0])
        #expect(try await queue.next() === sockets[1])
        #expect(!queue.isAwaited)
    }

    /// The progress of a task, for another thread to wait for.
    private final class Progress: Sendable {
        let mayAsk = Atomic(false), hasEnded = Atomic(false)
    }

    /// Cancelled at every point between the call and the wait.
    @Test func aTaskThatIsCancelledWhileItAsksDoesNotWait() async throws {
        for round in 0..<2000 {
            let (queue, progress) = (SocketQueue(), Progress())
            let (beginnings, begins) = AsyncStream<Void>.makeStream()
            let task = Task {
                defer { progress.hasEnded.store(true, ordering: .releasing) }
                begins.finish()
                while !progress.mayAsk.load(ordering: .acquiring) {}
                return try await queue.next()
            }
            for await _ in beginnings {}
            progress.mayAsk.store(true, ordering: .releasing)
            for _ in 0..<round % 100 { _ = queue.isAwaited }
            task.cancel()
            // From now on, the task does not wait.
            var wasAwaited = false
            while !progress.hasEnded.load(ordering: .acquiring), !wasAwaited { wasAwaited = queue.isAwaited }
            #expect(!wasAwaited)
            queue.end()
            #expect(await task.outcome == .cancelled)
        }
    }
}

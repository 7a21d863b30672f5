import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

extension ServingTasks {
    /// Starts a task as a reception does.
    func start(_ body: @escaping @Sendable () async -> Void) {
        let place = reserve()
        let task = Task {
            await body()
            end(place)
        }
        put(task, at: place)
    }
}

/// Tasks of a listener's connections that do not run in a task group.
@Suite(.timeLimit(.patient)) struct ServingTasksTests {
    /// Starts tasks that run until they are cancelled.
    private func startWaiting(_ tasks: ServingTasks, count: Int = 1, ended: Locked<Int> = Locked(0)) {
        for _ in 0..<count {
            tasks.start {
                let (stream, continuation) = AsyncStream<Void>.makeStream()
                for await _ in stream {}
                withExtendedLifetime(continuation) {}
                ended.withLock { $0 += 1 }
            }
        }
    }

    @Test func placesAreReusedAndFreedAfterTheLastTask() async throws {
        let tasks = ServingTasks()
        startWaiting(tasks)
        for _ in 0..<1000 {
            tasks.start {}
            try await eventually("it has ended") { tasks.count == 1 }
        }
        #expect(tasks.storedCount == 2)
        tasks.cancel()
        await tasks.ended()
        #expect(tasks.count == 0 && tasks.storedCount == 0)
    }

    @Test func endedReturnsAfterAllTasks() async throws {
        let tasks = ServingTasks()
        let ended = Locked(0)
        startWaiting(tasks, count: 500, ended: ended)
        #expect(tasks.count == 500)
        let canceller = Task.detached { tasks.cancel() }
        await tasks.ended()
        #expect(ended.withLock { $0 } == 500)
        await canceller.value
        // Tasks that are started later are cancelled too.
        startWaiting(tasks, count: 10, ended: ended)
        await tasks.ended()
        #expect(ended.withLock { $0 } == 510 && tasks.count == 0 && tasks.storedCount == 0)
    }

    /// Tasks finish while other tasks are started, and each is counted once.
    @Test func tasksFinishWhileOtherTasksStart() async throws {
        let tasks = ServingTasks()
        let ended = Locked(0)
        for _ in 0..<20_000 {
            tasks.start { ended.withLock { $0 += 1 } }
        }
        await tasks.ended()
        #expect(ended.withLock { $0 } == 20_000 && tasks.count == 0 && tasks.storedCount == 0)
    }
}

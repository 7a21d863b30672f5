import AsyncSocketsTesting
import Dispatch
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import SocketCore

/// Tasks that run on a loop.
@Suite(.timeLimit(.patient)) struct LoopExecutorTests {
    /// Passes events to a closure.
    private final class Handler: EventHandler {
        private let body: @Sendable (LoopEvents) -> Void

        init(_ body: @escaping @Sendable (LoopEvents) -> Void) {
            self.body = body
        }

        func handle(_ events: LoopEvents) { body(events) }
    }

    /// Forwards jobs to a loop without keeping the loop alive for long.
    private final class Forwarder: TaskExecutor {
        private let loop: Locked<SocketEventLoop?>

        init(to loop: SocketEventLoop) {
            self.loop = Locked(loop)
        }

        func enqueue(_ job: consuming ExecutorJob) {
            let loop = loop.withLock { $0 }
            loop?.enqueue(job)
        }

        func forget() {
            let loop = loop.withLock { $0.take() }
            withExtendedLifetime(loop) {}
        }
    }

    /// Blocks a loop's thread until it is opened.
    private final class Gate: Sendable {
        private let semaphore = DispatchSemaphore(value: 0)

        /// Returns when the loop has reached the gate.
        func close(_ loop: SocketEventLoop) async {
            await withCheckedContinuation { continuation in
                loop.run {
                    continuation.resume()
                    self.semaphore.wait()
                }
            }
        }

        func open() {
            semaphore.signal()
        }
    }

    private actor Counter {
        private(set) var count = 0

        /// Returns whether the call runs on `loop`.
        func increment(on loop: SocketEventLoop) -> Bool {
            count += 1
            return loop.isCurrent
        }
    }

    // MARK: - Threads of tasks

    @Test func aTaskThatPrefersALoopRunsOnItsThread() async throws {
        let loop = try SocketEventLoop()
        #expect(!loop.isCurrent)
        let isCurrent = await Task(executorPreference: loop) {
            let before = loop.isCurrent
            await Task.yield()
            return before && loop.isCurrent
        }.value
        #expect(isCurrent)
        let isInside = await withTaskExecutorPreference(loop) { loop.isCurrent }
        #expect(isInside)
        #expect(!loop.isCurrent)
    }

    @Test func childTasksAndActorsFollowTheTaskToItsLoop() async throws {
        let loop = try SocketEventLoop()
        let places = await Task(executorPreference: loop) {
            async let one = loop.isCurrent
            async let other = Counter().increment(on: loop)
            let group = await withTaskGroup { group in
                for _ in 0..<10 { group.addTask { loop.isCurrent } }
                return await group.reduce(into: []) { $0.append($1) }
            }
            return group + [await one, await other]
        }.value
        #expect(places == Array(repeating: true, count: 12))
    }

    @concurrent private func isCurrentConcurrently(_ loop: SocketEventLoop) async -> Bool { loop.isCurrent }

    @Test func theGlobalExecutorAndNewTasksLeaveTheLoop() async throws {
        let loop = try SocketEventLoop()
        try await Task(executorPreference: loop) {
            let isInGlobal = await withTaskExecutorPreference(globalConcurrentExecutor) { loop.isCurrent }
            #expect(!isInGlobal)
            #expect(loop.isCurrent)
            let isInNew = await Task { loop.isCurrent }.value
            #expect(!isInNew)
            let isInNewWithNil = await Task(executorPreference: nil) { loop.isCurrent }.value
            #expect(!isInNewWithNil)
            let isInDetached = await Task.detached { loop.isCurrent }.value
            #expect(!isInDetached)
            let isOnMain = await Task { @MainActor in loop.isCurrent }.value
            #expect(!isOnMain)
            try #require(loop.isCurrent)
        }.value
    }

    @Test func neitherNilNorConcurrentFunctionsLeaveTheLoop() async throws {
        let loop = try SocketEventLoop()
        await Task(executorPreference: loop) {
            let isWithNil = await withTaskExecutorPreference(nil) { loop.isCurrent }
            #expect(isWithNil)
            let isConcurrent = await isCurrentConcurrently(loop)
            #expect(isConcurrent)
        }.value
    }

    // MARK: - Jobs from other threads

    @Test func manyArrivalsWakeALoopOnce() {
        var wakefulness = LoopWakefulness()
        #expect((0..<1000).filter { _ in wakefulness.mustWake() } == [0])
        // The loop has read the eventfd and is serving, so it will check its lists again.
        wakefulness.isWoken = false
        wakefulness.isServing = true
        #expect((0..<1000).filter { _ in wakefulness.mustWake() } == [])
        wakefulness.isServing = false
        #expect((0..<1000).filter { _ in wakefulness.mustWake() } == [0])
    }

    @Test func aHundredThousandJobsOfFourThreadsRunOnceEach() async throws {
        let loop = try SocketEventLoop()
        let perThread = 25_000
        // A job that runs on another thread counts as a thousand.
        let counts = Locked(Array(repeating: 0, count: 4 * perThread))
        let (jobs, continuation) = AsyncStream<Void>.makeStream()
        for thread in 0..<4 {
            DispatchQueue(label: "thread \(thread)").async {
                for number in thread * perThread..<(thread + 1) * perThread {
                    Task(executorPreference: loop) {
                        counts.withLock { $0[number] += loop.isCurrent ? 1 : 1000 }
                        continuation.yield()
                    }
                }
            }
        }
        var iterator = jobs.makeAsyncIterator()
        for _ in 0..<4 * perThread { await iterator.next() }
        #expect(counts.withLock { $0.allSatisfy { $0 == 1 } })
    }

    @Test func anIdleLoopHasNoThreadUntilAJobComes() async throws {
        let loop = try SocketEventLoop()
        for _ in 0..<5 {
            try await eventually("the loop is idle") { !loop.hasThread }
            let hasThread = await Task(executorPreference: loop) { loop.hasThread && loop.isCurrent }.value
            #expect(hasThread)
        }
    }

    /// A loop receives jobs while it waits in the kernel and while it serves others.
    @Test func twoLoopsSendATaskToAndFro() async throws {
        let (one, other) = (try SocketEventLoop(), try SocketEventLoop())
        await withTaskGroup { group in
            for _ in 0..<8 {
                group.addTask {
                    await withTaskExecutorPreference(one) {
                        for _ in 0..<1000 {
                            let isOnOther = await withTaskExecutorPreference(other) { other.isCurrent && !one.isCurrent }
                            let isOnOne = one.isCurrent && !other.isCurrent
                            if !isOnOne || !isOnOther { Issue.record("a task runs elsewhere") }
                        }
                    }
                }
            }
        }
    }

    // MARK: - Jobs and events

    @Test func aTaskThatYieldsForeverDoesNotHoldUpEvents() async throws {
        let loop = try SocketEventLoop()
        let (near, far) = try makeSocketPair()
        let yielding = (0..<3).map { _ in
            Task(executorPreference: loop) {
                let end = ContinuousClock.now + .patient
                while !Task.isCancelled, ContinuousClock.now < end { await Task.yield() }
                #expect(Task.isCancelled, "the events did not arrive while the tasks yielded")
            }
        }
        let (events, continuation) = AsyncStream<LoopEvents>.makeStream()
        let registration = loop.register(Handler { continuation.yield($0) })
        try loop.watch(near, for: registration)
        // On a loop, because this test keeps a processor busy, and Swift's threads must run the other tests.
        await withTaskExecutorPreference(try SocketEventLoop()) {
            var iterator = events.makeAsyncIterator()
            #expect(await iterator.next() == .writable)
            for _ in 0..<100 {
                far.send("x")
                #expect(await iterator.next()?.contains(.readable) == true)
            }
            // Other turns and jobs run too.
            loop.resume(registration)
            #expect(await iterator.next() == .resumed)
            await Task(executorPreference: loop) {}.value
            for task in yielding { task.cancel() }
        }
        for task in yielding { await task.value }
        loop.unwatch(near)
        loop.deregister(registration)
    }

    /// Its handler makes it readable again and asks for another turn, each time.
    @Test func aBusyDescriptorDoesNotHoldUpJobs() async throws {
        let loop = try SocketEventLoop()
        let (near, far) = try makeSocketPair()
        let isOver = Atomic(false)
        let own = Locked<LoopRegistration?>(nil)
        let registration = loop.register(
            Handler { [weak loop] _ in
                guard !isOver.load(ordering: .relaxed) else { return }
                near.drain()
                far.send("x")
                if let own = own.withLock({ $0 }) { loop?.resume(own) }
            })
        own.withLock { $0 = registration }
        try loop.watch(near, for: registration)
        // On a loop, as above.
        await withTaskExecutorPreference(try SocketEventLoop()) {
            await Task(executorPreference: loop) {
                for _ in 0..<1000 { await Task.yield() }
            }.value
            for _ in 0..<100 { await Task(executorPreference: loop) {}.value }
            isOver.store(true, ordering: .relaxed)
        }
        loop.unwatch(near)
        loop.deregister(registration)
    }

    /// Its continuation is resumed by a handler, and it runs in the same batch.
    @Test func aTaskThatAHandlerResumesRunsBeforeTheNextOne() async throws {
        let loop = try SocketEventLoop()
        let order = Locked<[String]>([])
        let gate = Gate()
        let (ready, readyContinuation) = AsyncStream<Void>.makeStream()
        let waiter = Locked<CheckedContinuation<Void, Never>?>(nil)
        let task = Task(executorPreference: loop) {
            await withCheckedContinuation { continuation in
                waiter.withLock { $0 = continuation }
                readyContinuation.finish()
            }
            order.withLock { $0.append("task") }
        }
        for await _ in ready {}
        let first = loop.register(
            Handler { _ in
                order.withLock { $0.append("first") }
                waiter.withLock { $0.take() }?.resume()
            })
        let second = loop.register(Handler { _ in order.withLock { $0.append("second") } })
        await gate.close(loop)
        loop.resume(first)
        loop.resume(second)
        gate.open()
        await task.value
        // Requests made now are processed after the batch.
        await withCheckedContinuation { continuation in loop.run { continuation.resume() } }
        #expect(order.withLock { $0 } == ["first", "task", "second"])
        loop.deregister(first)
        loop.deregister(second)
    }

    /// Each job takes longer than a batch may. An event during the first waits for at most two jobs.
    @Test func longJobsDoNotHoldUpEvents() async throws {
        let loop = try SocketEventLoop()
        let gate = Gate()
        let (count, counts) = (Locked(0), Locked<[Int]>([]))
        let registration = loop.register(Handler { _ in counts.withLock { $0.append(count.withLock { $0 }) } })
        await gate.close(loop)
        let tasks = (0..<50).map { number in
            Task(executorPreference: loop) {
                count.withLock { $0 += 1 }
                if number % 25 == 0 { loop.resume(registration) }
                let end = ContinuousClock.now + .microseconds(1500)
                while ContinuousClock.now < end {}
            }
        }
        gate.open()
        for task in tasks { await task.value }
        let before = counts.withLock { $0 }
        #expect(before.count == 2 && before[0] <= 3 && before[1] <= 28, "\(before)")
        loop.deregister(registration)
    }

    /// Nothing else wakes the loop. A timer would take twenty milliseconds each time.
    @Test func aTaskThatGaveUpItsTurnGoesOnByItself() async throws {
        let loop = try SocketEventLoop()
        try await eventually("a thousand turns need no timer") {
            let start = ContinuousClock.now
            await Task(executorPreference: loop) {
                for _ in 0..<1000 { await JobBudget.renew() }
            }.value
            return start.duration(to: .now) < .seconds(1)
        }
    }

    // MARK: - The end of a loop

    /// A handler may run the first part of a task, as a callback does with `Task.immediate`. If that code
    /// yields, it continues, even on a loop that has not run a job.
    @Test func aTaskThatBeginsInAHandlerContinuesAfterItsTurn() async throws {
        let loop = try SocketEventLoop()
        for _ in 1...3 {
            let hasContinued = try TestSignal()
            loop.run {
                Task.immediate {
                    await JobBudget.renew()
                    hasContinued.fire()
                }
            }
            try await hasContinued.wait()
        }
    }

    @Test func aLoopThatIsReleasedRunsTheJobsThatWait() async throws {
        var loop: SocketEventLoop? = try SocketEventLoop()
        weak let end = loop
        let gate = Gate()
        if let loop { await gate.close(loop) }
        let tasks = (0..<1000).map { number in
            Task(executorPreference: loop) {
                await Task.yield()
                return number
            }
        }
        loop = nil
        gate.open()
        for (number, task) in tasks.enumerated() { #expect(await task.value == number) }
        try await eventually("the loop has ended") { end == nil }
    }

    @Test func aJobKeepsALoopThatItsTaskDoesNotKnow() async throws {
        var loop: SocketEventLoop? = try SocketEventLoop()
        weak let end = loop
        let gate = Gate()
        guard let forwarder = loop.map({ Forwarder(to: $0) }) else { return }
        if let loop { await gate.close(loop) }
        let tasks = (0..<100).map { _ in Task(executorPreference: forwarder) {} }
        forwarder.forget()
        loop = nil
        gate.open()
        for task in tasks { await task.value }
        try await eventually("the loop has ended") { end == nil }
    }

    @Test func aLoopMayEndWithTheLastTaskThatKeepsIt() async throws {
        for _ in 0..<200 {
            let loop = try SocketEventLoop()
            weak let end = loop
            await Task(executorPreference: consume loop) { await Task.yield() }.value
            try await eventually("the loop has ended") { end == nil }
        }
    }
}

/// Returns the two ends of a socket pair.
private func makeSocketPair() throws -> (SocketDescriptor, SocketDescriptor) {
    let (near, far) = try RawSocket.pair()
    return (SocketDescriptor(takingOver: near.duplicate()), SocketDescriptor(takingOver: far.duplicate()))
}

extension SocketDescriptor {
    fileprivate func send(_ text: String) {
        Array(text.utf8).withUnsafeBytes { _ = send($0) }
    }

    /// Receives the available data.
    fileprivate func drain() {
        let buffer = PreBuffer()
        while case .bytes(let count) = receive(into: buffer.writableBytes(minimum: 100)), count > 0 {}
    }
}

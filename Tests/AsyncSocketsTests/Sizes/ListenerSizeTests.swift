import AsyncSocketsTesting
import Dispatch
import Logging
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// The memory of the queues and tables of a `SocketListener` after connections and tasks have finished.
@Suite(.timeLimit(.patient)) struct ListenerSizeTests {
    private static let count = 10_000
    private let tally = Tally()

    // MARK: - Ready sockets

    private typealias Queue = ReadyQueue<any AnyObject & Sendable>

    @Test func aQueueOfReadySocketsKeepsNothing() async throws {
        let queue = Queue()
        let before = Contents(of: queue)
        // The socket or the task is first.
        for number in 0..<Self.count {
            if number % 2 == 0 {
                queue.put(tally.token())
                await queue.room()
                #expect(try await queue.next() != nil)
            } else {
                let task = Task.immediate { try await queue.next() != nil }
                #expect(queue.isAwaited)
                queue.put(tally.token())
                #expect(try await task.value)
            }
        }
        #expect(Contents(of: queue) == before)
        try await eventually("the tasks have released their results") { tally.alive == 0 }
    }

    /// Tasks are cancelled while they wait, before they wait, and at any time in between.
    @Test func aQueueOfReadySocketsForgetsCancelledTasks() async throws {
        let queue = Queue()
        let before = Contents(of: queue)
        for number in 0..<5_000 {
            let task = number % 2 == 0 ? Task.immediate { try await queue.next() } : Task { try await queue.next() }
            task.cancel()
            await #expect(throws: CancellationError.self) { _ = try await task.value }
        }
        // Cancelled just after they were served.
        for _ in 0..<2_000 {
            let task = Task.immediate { try await queue.next() }
            queue.put(tally.token())
            task.cancel()
            #expect(try await task.value != nil)
        }
        #expect(Contents(of: queue) == before && !queue.isAwaited)
        try await eventually("the tasks have released their results") { tally.alive == 0 }
        let waiting = (0..<100).map { _ in Task.immediate { try await queue.next() == nil } }
        let accepting = Task.immediate { await queue.room() }
        queue.stop()
        queue.end()
        for task in waiting { #expect(try await task.value) }
        await accepting.value
        #expect(Contents(of: queue) == before)
    }

    // MARK: - Handshake permits

    @Test func handshakePermitsKeepNothingOfTasksThatHaveLeft() async throws {
        let slots = HandshakeSlots(limit: 3)
        let before = Contents(of: slots)
        for round in 0..<4 {
            await withTaskGroup(of: Void.self) { group in
                for number in 0..<2_500 {
                    group.addTask {
                        await slots.enter()
                        slots.leave()
                        if number % 50 == 0 { slots.limit = 1 + number % 4 }
                    }
                    if number % 100 == 99 { await group.next() }
                }
                // Cancelled tasks also take their turn.
                if round % 2 == 1 { group.cancelAll() }
            }
            #expect(slots.takenCount == 0 && slots.waitingCount == 0 && Contents(of: slots) == before)
        }
        slots.limit = 1
        await slots.enter()
        let waiting = (0..<1_000).map { _ in Task.immediate { await slots.enter() } }
        #expect(slots.waitingCount == 1_000)
        slots.open()
        for task in waiting { await task.value }
        #expect(slots.waitingCount == 0 && slots.sourceCount == 1 && slots.takenCount == 1_001)
    }

    // MARK: - Tasks

    /// Tasks that return, and tasks that are cancelled.
    @Test func tasksThatHaveEndedAreNotKept() async throws {
        let tasks = ServingTasks()
        let before = Contents(of: tasks)
        for isCancelled in [false, true] {
            for _ in 0..<Self.count / 2 {
                let token = tally.token()
                tasks.start {
                    if isCancelled {
                        let (stream, end) = AsyncStream<Void>.makeStream()
                        for await _ in stream {}
                        end.finish()
                    }
                    withExtendedLifetime(token) {}
                }
            }
            if isCancelled { tasks.cancel() }
            await tasks.ended()
            #expect(tasks.count == 0 && tasks.storedCount == 0 && Contents(of: tasks) == before)
        }
        try await eventually("their closures are released") { tally.alive == 0 }
    }

    // MARK: - The reception

    private func reception() throws -> Reception<any AnyObject & Sendable> {
        let loop = try SocketEventLoop()
        return Reception(loop: loop, quota: AcceptQuota(aheadLimit: 64, loop: loop))
    }

    /// Takes a permit for a connection, which closes but is not taken.
    @discardableResult private func takePermit(of quota: AcceptQuota) throws -> Bool {
        let descriptor = try SocketDescriptor(streamOf: .ipv4)
        defer { descriptor.close() }
        guard let permit = quota.takePermit(for: LoopRegistration(index: 0, generation: 0)) else { return false }
        return permit.handOver(to: descriptor, of: try .loopback(port: 9))
    }

    private func arrive(_ reception: Reception<any AnyObject & Sendable>) throws {
        try takePermit(of: reception.quota)
        reception.arrive(tally.token())
    }

    /// Checks that the quota counts no connection as accepted and not taken.
    private func expectAllPermits(of quota: AcceptQuota) throws {
        for _ in 0..<64 { #expect(try takePermit(of: quota)) }
        #expect(try !takePermit(of: quota))
    }

    @Test func aReceptionKeepsNothingOfConnectionsThatWereServed() async throws {
        let reception = try reception()
        _ = try reception.begin(.run)
        let before = (Contents(of: reception), Contents(of: reception.quota))
        for _ in 0..<Self.count / 4 {
            for _ in 0..<4 { try arrive(reception) }
            #expect(await reception.arrivals()?.count == 4)
            for _ in 0..<4 { reception.noteServed() }
        }
        #expect((reception.servedCount, reception.waitingCount, reception.quota.openCount) == (0, 0, 0))
        #expect(Contents(of: reception) == before.0 && Contents(of: reception.quota) == before.1 && tally.alive == 0)
        try expectAllPermits(of: reception.quota)
    }

    /// No task takes the connections, and their peers close them.
    @Test func aReceptionReleasesConnectionsThatHaveClosed() async throws {
        let reception = try reception()
        for _ in 0..<Self.count {
            try arrive(reception)
            reception.noteClosed { _ in true }
            #expect(reception.waitingCount <= 17)
        }
        for _ in 0..<17 { reception.noteClosed { _ in true } }
        #expect(reception.waitingCount == 0 && tally.alive == 0)
        try expectAllPermits(of: reception.quota)
    }

    @Test func aReceptionForgetsTasksThatAreCancelled() async throws {
        let reception = try reception()
        _ = try reception.begin(.run)
        let before = Contents(of: reception)
        for number in 0..<2_000 {
            let task = number % 2 == 0 ? Task.immediate { await reception.stopped() } : Task { await reception.stopped() }
            task.cancel()
            await task.value
        }
        for _ in 0..<500 {
            #expect(try await reception.untilStopped { 1 } == 1)
            let body = Task.immediate { try await reception.untilStopped { await reception.stopped() } }
            body.cancel()
            _ = await body.result
        }
        #expect(reception.stopWaiterCount == 0 && Contents(of: reception) == before)
    }

    /// Tasks that wait for accepting to stop and for the end, and limits for the shutdown.
    @Test func aReceptionThatHasEndedKeepsNothing() async throws {
        let reception = try reception()
        let fresh = Contents(of: reception)
        _ = try reception.begin(.run)
        for _ in 0..<100 { try arrive(reception) }
        #expect(await reception.arrivals()?.count == 100)
        for _ in 0..<5 { try arrive(reception) }
        let stops = (0..<100).map { _ in Task.immediate { await reception.stopped() } }
        let ends = (0..<100).map { _ in Task.immediate { await reception.ended() } }
        for _ in 0..<100 { reception.cut(after: .patient) }
        let lastCall = Task.immediate { await reception.lastCall() }
        #expect(reception.stopWaiterCount == 100 && Contents(of: reception)["state.alarms"] == 100)
        reception.stop()
        for task in stops { await task.value }
        reception.cut()
        await lastCall.value
        reception.end()
        for task in ends { await task.value }
        #expect(tally.alive == 0 && Contents(of: reception) == fresh.without("state.use"))
        // Too late for a connection and for a limit.
        reception.arrive(tally.token())
        reception.cut(after: .patient)
        #expect(tally.alive == 0 && Contents(of: reception)["state.alarms"] == 0)
    }

    @Test func anAlarmReleasesItsClosure() async throws {
        let calls = Locked(0)
        var alarms: [Alarm] = []
        for number in 0..<2_000 {
            let token = tally.token()
            let isSoon = number % 10 == 0
            let time = try #require(Deadline(after: isSoon ? 0.01 : .patient))
            alarms.append(Alarm(at: time) { withExtendedLifetime(token) { calls.withLock { $0 += 1 } } })
            if !isSoon { alarms.last?.stop() }
        }
        try await eventually("the remaining alarms have fired") { calls.withLock { $0 } == 200 && tally.alive == 0 }
        withExtendedLifetime(alarms) {}
        // An alarm without an owner does not ring.
        for _ in 0..<100 {
            let token = tally.token()
            _ = Alarm(at: try #require(Deadline(after: .patient))) { withExtendedLifetime(token) {} }
        }
        #expect(tally.alive == 0)
    }

    // MARK: - The log

    private struct Kind<Inner>: Error {}

    private func note<Inner>(_: Inner.Type, depth: Int, in log: FailureLog) {
        for stage in [FailureLog.Stage.connecting, .handshake, .body] {
            for _ in 0..<3 { log.note(Kind<Inner>(), of: nil, in: stage, isHandled: false, LogRecorder.logger(of: "kinds")) }
        }
        if depth > 0 { note(Kind<Inner>.self, depth: depth - 1, in: log) }
    }

    /// A peer that chooses among many errors.
    @Test func theLogKeepsFewKindsOfFailures() {
        let log = FailureLog()
        note(Int.self, depth: 100, in: log)
        // The last one counts the failures of all other kinds.
        #expect(Contents(of: log)["lines"] == 65)
        note(String.self, depth: 100, in: log)
        #expect(Contents(of: log)["lines"] == 65)
    }

    // MARK: - Slow handshake steps

    @Test func workersKeepFewKeysAndNoSteps() async throws {
        let workers = HandshakeWorkers(count: 2)
        let (done, isOver, gate) = (Locked(0), Locked(false), DispatchSemaphore(value: 0))
        let idle = Contents(of: workers)
        func perform(_ key: Int, isCancelled: Bool = false, _ step: @escaping @Sendable () -> Void = {}) {
            let token = tally.token()
            let isAccepted = workers.perform(.signing(key), isCancelled: { isCancelled && isOver.withLock { $0 } }) {
                step()
                withExtendedLifetime(token) { done.withLock { $0 += 1 } }
            }
            #expect(isAccepted)
        }
        for key in 0..<Self.count { perform(key) }
        try await eventually("all are done") { done.withLock { $0 } == Self.count && tally.alive == 0 }
        try await eventually("the workers are idle") { Contents(of: workers)["state.idle"] == idle["state.idle"] }
        #expect(Contents(of: workers)["state.lanes"] <= 64)
        // Both workers are busy. The handshakes of all queued steps close in the meantime.
        for key in -2..<0 { perform(key) { gate.wait() } }
        for key in 0..<2_000 { perform(key % 500, isCancelled: true) }
        isOver.withLock { $0 = true }
        for _ in 0..<2 { gate.signal() }
        try await eventually("all are released") { tally.alive == 0 }
        try await eventually("the workers are idle again") { Contents(of: workers)["state.idle"] == idle["state.idle"] }
        #expect(done.withLock { $0 } <= Self.count + 2 + 2)
        let contents = Contents(of: workers)
        #expect(contents["state.lanes"] <= 64 && contents.without("state.lanes") == idle, "\(contents)")
        #expect(contents["state.lanes[].steps"] == 0 && contents["state.lanes[].beginnings"] == 0)
    }
}

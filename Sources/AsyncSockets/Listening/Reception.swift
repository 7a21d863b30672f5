// Rules for a reception:
//  1. An accepted connection, or a new datagram peer, is in exactly one place: it is queued in the reception,
//     or a task serves it. Connections still queued when accepting stops are served. Connections still queued
//     when `cut` is called are closed.
//  2. One task takes the arrivals (`arrivals()`): the task of `run` or of `connections`. It is started only
//     once.
//  3. `stop` stops accepting. Connections that the acceptors have accepted by then may still arrive, until
//     `noteLastArrival` is called. Tasks continue until they finish or `cut` is called.
//  4. The reception is complete when no more connections can arrive and no task serves one.
//  5. `cut` cancels the accepting task, and thereby the serving tasks, on the calling thread, because the
//     loops may be busy.

internal import SocketBuffers
internal import SocketCore

/// The queue between a `SocketListener` that accepts connections, or a `DatagramListener` with new peers, and
/// the tasks that serve them. Also counts those tasks.
final class Reception<Arrival: Sendable>: Sendable {
    /// `run` or `connections`.
    typealias Operation = AsyncSocketError.Operation

    private enum Use {
        case none
        case accepting(Operation)
        case ended(Operation)

        var isAccepting: Bool { if case .accepting = self { true } else { false } }

        var operation: Operation? {
            switch self {
            case .none: nil
            case .accepting(let operation), .ended(let operation): operation
            }
        }
    }

    /// A child task of `untilStopped(_:)` that has finished.
    private enum Finished<Result: Sendable>: Sendable {
        case body(Result?)
        case watch
    }

    private struct State {
        var use = Use.none
        var isStopped = false
        /// Whether `noteLastArrival` or `cut` has been called.
        var isComplete = false
        /// Whether `cut` has been called.
        var isCut = false
        var arrived: [Arrival] = []
        /// How many connections have closed since closed connections were last removed from `arrived`.
        var closedCount = 0
        var servedCount = 0
        /// The task suspended in `arrivals()`.
        var taker: UnsafeContinuation<Void, Never>?
        /// The task suspended in `lastCall()`.
        var closer: UnsafeContinuation<Void, Never>?
        /// The tasks suspended in `stopped()`. There may be one for each connection.
        var stopWaiters: [Int: UnsafeContinuation<Void, Never>] = [:]
        var endWaiters: [(number: Int, waiter: UnsafeContinuation<Void, Never>)] = []
        var lastNumber = 0
        /// The accepting task. Cancelling it cancels the tasks that serve.
        var server: Task<Void, Never>?
        var alarms: [Alarm] = []
    }

    private let state = Locked(State())
    let loop: SocketEventLoop
    let quota: AcceptQuota

    init(loop: SocketEventLoop, quota: AcceptQuota) {
        self.loop = loop
        self.quota = quota
    }

    var isOpen: Bool { state.withLock { !$0.isStopped } }

    var isBegun: Bool { state.withLock { $0.use.operation != nil } }

    var waitingCount: Int { state.withLock { $0.arrived.count } }

    var servedCount: Int { state.withLock { $0.servedCount } }

    /// How many tasks are suspended in `stopped()`.
    var stopWaiterCount: Int { state.withLock { $0.stopWaiters.count } }

    /// Starts accepting. Returns `false` for a repeated use of `connections`, which several tasks may use.
    ///
    /// - Throws: `.badConfiguration` if another operation has already started accepting.
    func begin(_ operation: Operation) throws(AsyncSocketError) -> Bool {
        let earlier = state.withLock { state in
            let earlier = state.use.operation
            if earlier == nil { state.use = .accepting(operation) }
            return earlier
        }
        if earlier == .connections, operation == .connections { return false }
        guard earlier == nil else {
            throw .badConfiguration(
                operation, "the listener is already in use or closed: create a new listener")
        }
        return true
    }

    // MARK: - Arrivals

    /// Called on the loop when a connection has been accepted.
    func arrive(_ arrival: Arrival) {
        let taker = state.withLock { state -> UnsafeContinuation<Void, Never>? in
            guard !state.isComplete else { return nil }
            state.arrived.append(arrival)
            return state.taker.take()
        }
        taker?.resume()
    }

    /// Called when a connection has closed, with or without a task. Releases the closed connections in the
    /// queue once the number of connections closed since the last sweep exceeds both 16 and half the length
    /// of the queue. This bounds their number at an amortized constant cost per call.
    func noteClosed(_ isClosed: (Arrival) -> Bool) {
        let closed = state.withLock { state -> [Arrival] in
            state.closedCount += 1
            guard state.closedCount > max(Self.leastSweep, state.arrived.count / 2) else { return [] }
            state.closedCount = 0
            let closed = state.arrived.filter(isClosed)
            if !closed.isEmpty { state.arrived.removeAll(where: isClosed) }
            return closed
        }
        // Released outside the lock.
        if !closed.isEmpty { quota.noteTaken(closed.count) }
    }

    private static var leastSweep: Int { 16 }

    /// Waits for at least one arrival and returns all arrivals, which are counted as served from now on.
    /// Returns `nil` when no more connections can arrive.
    nonisolated(nonsending) func arrivals() async -> [Arrival]? {
        while true {
            let (isOver, arrived) = state.withLock { state -> (Bool, [Arrival]) in
                let arrived = state.arrived
                state.arrived = []
                state.servedCount += arrived.count
                return (state.isComplete, arrived)
            }
            if !arrived.isEmpty {
                quota.noteTaken(arrived.count)
                return arrived
            }
            if isOver { return nil }
            await withUnsafeContinuation { continuation in
                let waits = state.withLock { state in
                    guard !state.isComplete, state.arrived.isEmpty else { return false }
                    state.taker = continuation
                    return true
                }
                if !waits { continuation.resume() }
            }
        }
    }

    /// The number of connections that have arrived and whose tasks have not finished.
    var unfinishedCount: Int { state.withLock { $0.servedCount + $0.arrived.count } }

    /// Called when a connection's task has finished.
    func noteServed() {
        let closer = state.withLock { state in
            state.servedCount -= 1
            return Self.takeCloser(&state)
        }
        closer?.resume()
    }

    // MARK: - Stopping

    /// Stops accepting. Connections that have arrived but have not been taken will be served.
    func stop() {
        let waiters = state.withLock { state in
            state.isStopped = true
            defer { state.stopWaiters = [:] }
            return state.stopWaiters
        }
        for waiter in waiters.values { waiter.resume() }
    }

    /// Stops accepting. Called after the last connection has arrived.
    func noteLastArrival() {
        stop()
        let taker = state.withLock { state in
            state.isComplete = true
            return state.taker.take()
        }
        taker?.resume()
    }

    private func newWaiterNumber() -> Int {
        state.withLock { state in
            state.lastNumber += 1
            return state.lastNumber
        }
    }

    /// Returns when accepting has stopped or the task is cancelled.
    nonisolated(nonsending) func stopped() async {
        let number = newWaiterNumber()
        await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                let waits = state.withLock { state in
                    guard !state.isStopped, !Task.isCancelled else { return false }
                    state.stopWaiters[number] = continuation
                    return true
                }
                if !waits { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.stopWaiters.removeValue(forKey: number) }?.resume()
        }
    }

    /// Calls `body`, and cancels it when accepting stops. Returns `nil` if `body` then throws a
    /// `CancellationError`, or if accepting had already stopped.
    nonisolated(nonsending) func untilStopped<Result: Sendable>(
        _ body: @escaping @Sendable () async throws -> Result?
    ) async throws -> Result? {
        try Task.checkCancellation()
        guard isOpen else { return nil }
        let result = try await withThrowingTaskGroup(of: Finished<Result>.self) { group in
            group.addTask {
                do {
                    return .body(try await body())
                } catch let error as CancellationError {
                    // If accepting has not stopped, it was the caller's task that was cancelled.
                    if self.isOpen { throw error }
                    return .body(nil)
                }
            }
            group.addTask {
                await self.stopped()
                return .watch
            }
            defer { group.cancelAll() }
            while let finished = try await group.next() {
                if case .body(let result) = finished { return result }
                group.cancelAll()
            }
            return nil
        }
        // `cut` cancels the task while the listener is closing.
        if result == nil { try Task.checkCancellation() }
        return result
    }

    /// Stops accepting, closes the connections that have not been taken, and cancels all tasks.
    func cut() {
        noteLastArrival()
        let (arrived, closer, server) = state.withLock { state in
            state.isCut = true
            defer { state.arrived = [] }
            return (state.arrived, Self.takeCloser(&state), state.server)
        }
        // Released outside the lock, because this closes descriptors.
        withExtendedLifetime(arrived) {}
        server?.cancel()
        closer?.resume()
    }

    /// Returns when `server` has finished. Until then, `cut` cancels it.
    func complete(_ server: Task<Void, Never>) async {
        let isCut = state.withLock { state in
            state.server = server
            return state.isCut
        }
        if isCut { server.cancel() }
        await withTaskCancellationHandler {
            await server.value
        } onCancel: {
            server.cancel()
        }
        state.withLock { $0.server = nil }
    }

    /// Calls `cut` after `time`, unless the reception has ended by then.
    func cut(after time: Duration) {
        guard let deadline = Deadline(after: max(time.inSeconds, 0)) else { return }
        state.withLock { state in
            guard state.use.isAccepting else { return }
            state.alarms.append(Alarm(at: deadline) { [weak self] in self?.cut() })
        }
    }

    /// Called after the last arrival. Returns when all connections have been served or when `cut` has been
    /// called.
    nonisolated(nonsending) func lastCall() async {
        await withUnsafeContinuation { continuation in
            let closer = state.withLock { state in
                state.closer = continuation
                return Self.takeCloser(&state)
            }
            closer?.resume()
        }
    }

    private static func takeCloser(_ state: inout State) -> UnsafeContinuation<Void, Never>? {
        state.isCut || state.isStopped && state.servedCount == 0 ? state.closer.take() : nil
    }

    /// Called when the last task has finished.
    func end() {
        let (waiters, alarms) = state.withLock { state in
            state.use = .ended(state.use.operation ?? .run)
            defer { (state.endWaiters, state.alarms) = ([], []) }
            return (state.endWaiters, state.alarms)
        }
        for alarm in alarms { alarm.stop() }
        for (_, waiter) in waiters { waiter.resume() }
    }

    /// Returns when no more connections can arrive and no task serves one. Call `stop` first.
    ///
    /// In a task that serves a connection, this returns immediately, because that task would wait for itself.
    /// If the calling task is cancelled, this cuts all connections and returns without waiting for them.
    nonisolated(nonsending) func ended() async {
        if ServedTask.isNeeded(by: self) { return }
        let number = newWaiterNumber()
        await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                let waits = state.withLock { state in
                    guard state.use.isAccepting, !Task.isCancelled else { return false }
                    state.endWaiters.append((number, continuation))
                    return true
                }
                if !waits { continuation.resume() }
            }
        } onCancel: {
            cut()
            let waiter = state.withLock { state -> UnsafeContinuation<Void, Never>? in
                guard let index = state.endWaiters.firstIndex(where: { $0.number == number }) else { return nil }
                return state.endWaiters.remove(at: index).waiter
            }
            waiter?.resume()
        }
    }
}

/// Marks a task that serves a connection. Tasks that it starts inherit the mark.
final class ServedTask: Sendable {
    @TaskLocal private static var current: ServedTask?

    private let reception: any AnyObject & Sendable
    /// The outer mark, if `run` was called in a task that serves another listener's connection.
    private let outer: ServedTask?
    private let task: Int?

    private init(_ reception: any AnyObject & Sendable) {
        self.reception = reception
        outer = Self.current
        task = Self.currentTask
    }

    private static var currentTask: Int? { withUnsafeCurrentTask { $0?.hashValue } }

    @inline(__always)
    nonisolated(nonsending) static func run(
        for reception: any AnyObject & Sendable, _ body: nonisolated(nonsending) () async -> Void
    ) async {
        await $current.withValue(ServedTask(reception), operation: body)
    }

    /// Whether `reception` has to wait for the current task.
    static func isNeeded(by reception: AnyObject) -> Bool {
        guard let current, current.task == currentTask else { return false }
        return sequence(first: current, next: \.outer).contains { $0.reception === reception }
    }
}

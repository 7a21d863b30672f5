// Rules of a reception:
//  1. An accepted connection, or a new peer of datagrams, is in one place: it waits here, or a task serves
//     it. Connections that wait when accepting ends are closed.
//  2. One task takes what has arrived (`arrivals()`): the task of `run` or of `connections`. It begins once.
//  3. `stop` is the end of accepting. Tasks go on until they end by themselves or `cut` comes.
//  4. The end is reached when accepting is over and no task serves a connection any more.
//  5. `cut` cancels the task that accepts, and with it those that serve, on the thread that calls it: the
//     loops may be busy.

internal import SocketBuffers
internal import SocketCore

/// The operation that accepts.
enum ReceptionOperation: String {
    case run
    case connections
}

/// The connections that a `SocketListener` has accepted, or the peers of a `DatagramListener`, on their way
/// to the tasks that serve them, and the number of those tasks.
final class Reception<Arrival: Sendable>: Sendable {
    typealias Operation = ReceptionOperation

    private enum Use {
        /// Nothing has begun to accept.
        case none
        case accepting(Operation)
        case ended(Operation)

        var isAccepting: Bool { if case .accepting = self { true } else { false } }

        /// The operation that has begun to accept.
        var operation: Operation? {
            switch self {
            case .none: nil
            case .accepting(let operation), .ended(let operation): operation
            }
        }
    }

    private struct State {
        var use = Use.none
        /// Nothing is accepted any more.
        var isStopped = false
        /// Connections have no more time.
        var isCut = false
        var arrived: [Arrival] = []
        /// How many connections have closed since closed ones were last removed from `arrived`.
        var closedCount = 0
        var servedCount = 0
        /// The task that waits in `arrivals()`.
        var taker: UnsafeContinuation<Void, Never>?
        /// The task that waits in `lastCall()`.
        var closer: UnsafeContinuation<Void, Never>?
        var endWaiters: [(number: Int, waiter: UnsafeContinuation<Void, Never>)] = []
        var lastNumber = 0
        /// The task that accepts, and whose children serve.
        var server: Task<Void, Never>?
        var alarms: [Alarm] = []
    }

    private let state = Locked(State())
    let loop: EventLoop
    let quota: AcceptQuota

    init(loop: EventLoop, quota: AcceptQuota) {
        self.loop = loop
        self.quota = quota
    }

    /// True until accepting is over.
    var isOpen: Bool { state.withLock { !$0.isStopped } }

    /// True once a task has begun to accept.
    var isBegun: Bool { state.withLock { $0.use.operation != nil } }

    /// How many connections have arrived, and have no task yet.
    var waitingCount: Int { state.withLock { $0.arrived.count } }

    /// How many connections have a task.
    var servedCount: Int { state.withLock { $0.servedCount } }

    /// A task begins to accept. False for `connections`, of which there may be several, when one of them has
    /// begun before.
    ///
    /// - Throws: `.badConfiguration` when something else has begun before.
    func begin(_ operation: Operation) throws(AsyncSocketError) -> Bool {
        let earlier = state.withLock { state in
            let earlier = state.use.operation
            if earlier == nil { state.use = .accepting(operation) }
            return earlier
        }
        if earlier == .connections, operation == .connections { return false }
        guard earlier == nil else {
            throw .badConfiguration(
                operation.rawValue, "the listener is in use, or its use has ended: make another one")
        }
        return true
    }

    // MARK: - Arrivals

    /// On the loop: a connection was accepted.
    func arrive(_ arrival: Arrival) {
        let taker = state.withLock { state -> UnsafeContinuation<Void, Never>? in
            guard !state.isStopped else { return nil }
            state.arrived.append(arrival)
            return state.taker.take()
        }
        taker?.resume()
    }

    /// Called when a connection has closed, with or without a task. Once closed connections may be a third of
    /// the queue, it releases them. This bounds their number, and costs constant time per call on average.
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

    /// Everything that has arrived, at least one, which counts as served from now on; nil when accepting is
    /// over.
    nonisolated(nonsending) func arrivals() async -> [Arrival]? {
        while true {
            let (isOver, arrived) = state.withLock { state -> (Bool, [Arrival]) in
                let arrived = state.arrived
                state.arrived = []
                state.servedCount += arrived.count
                return (state.isStopped, arrived)
            }
            if !arrived.isEmpty {
                quota.noteTaken(arrived.count)
                return arrived
            }
            if isOver { return nil }
            await withUnsafeContinuation { continuation in
                let waits = state.withLock { state in
                    guard !state.isStopped, state.arrived.isEmpty else { return false }
                    state.taker = continuation
                    return true
                }
                if !waits { continuation.resume() }
            }
        }
    }

    /// The task of a connection is over.
    func noteServed() {
        let closer = state.withLock { state in
            state.servedCount -= 1
            return Self.takeCloser(&state)
        }
        closer?.resume()
    }

    /// Lets some time pass.
    func pass(_ time: Duration) async throws {
        let (stream, continuation) = AsyncStream<Void>.makeStream()
        let alarm = Deadline(after: time.inSeconds).map { Alarm(at: $0) { continuation.finish() } }
        for await _ in stream {}
        alarm?.stop()
        try Task.checkCancellation()
    }

    // MARK: - The end

    /// Ends accepting. Connections that have arrived and were not taken are closed.
    func stop() {
        let (arrived, taker) = state.withLock { state in
            state.isStopped = true
            defer { state.arrived = [] }
            return (state.arrived, state.taker.take())
        }
        // Released outside of the lock: that closes descriptors.
        withExtendedLifetime(arrived) {}
        taker?.resume()
    }

    /// Ends accepting, and all tasks soon.
    func cut() {
        stop()
        let (closer, server) = state.withLock { state in
            state.isCut = true
            return (Self.takeCloser(&state), state.server)
        }
        server?.cancel()
        closer?.resume()
    }

    /// Waits for `server`, which `cut` cancels.
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

    /// Has `cut` come after `time`, if the end has not come by then.
    func cut(after time: Duration) {
        guard let deadline = Deadline(after: max(time.inSeconds, 0)) else { return }
        state.withLock { state in
            guard state.use.isAccepting else { return }
            state.alarms.append(Alarm(at: deadline) { [weak self] in self?.cut() })
        }
    }

    /// After the last arrival: returns when all connections are served, or when those left are to be cut.
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

    /// The last task is over.
    func end() {
        let (waiters, alarms) = state.withLock { state in
            state.use = .ended(state.use.operation ?? .run)
            defer { (state.endWaiters, state.alarms) = ([], []) }
            return (state.endWaiters, state.alarms)
        }
        for alarm in alarms { alarm.stop() }
        for (_, waiter) in waiters { waiter.resume() }
    }

    /// Returns when no task serves a connection any more, and none accepts. Call `stop` before.
    ///
    /// In a task that serves a connection, this returns immediately, because that task would wait for itself.
    /// If the calling task is cancelled, this cuts all connections and returns without waiting for them.
    nonisolated(nonsending) func ended() async {
        if ServedTask.isNeeded(by: self) { return }
        let number = state.withLock { state in
            state.lastNumber += 1
            return state.lastNumber
        }
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

    /// Runs `body` in a marked task.
    static func run(for reception: any AnyObject & Sendable, _ body: () async -> Void) async {
        await $current.withValue(ServedTask(reception), operation: body)
    }

    /// Whether `reception` has to wait for the current task.
    static func isNeeded(by reception: AnyObject) -> Bool {
        guard let current, current.task == currentTask else { return false }
        return sequence(first: current, next: \.outer).contains { $0.reception === reception }
    }
}

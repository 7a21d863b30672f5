internal import CLinux
package import Dispatch
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// A single-threaded event loop for many sockets and the tasks that prefer it. An idle loop uses no thread.
///
/// A loop waits for events on its sockets, handles them, and runs the jobs of tasks in between. A task that
/// runs on the loop of its socket avoids a thread switch between an event and the code that awaits it:
///
///     Task(executorPreference: loop) { … }
///     await withTaskExecutorPreference(loop) { … }
///
/// The preference also applies to child tasks, to actors without a custom executor, and to `@concurrent`
/// functions.
///
/// Run only short, non-blocking work on a loop, because it delays the loop's other sockets and tasks. Other
/// loops are not affected. If a loop is blocked for one second, a warning is logged that names the
/// connection of the callback or task, and new connections are assigned to other loops. Reads and writes
/// yield to other tasks about once per millisecond. A long computation should call `Task.yield()` from time
/// to time, or leave the loop:
///
/// - `await withTaskExecutorPreference(globalConcurrentExecutor) { … }` runs on Swift's own threads and
///   then returns to the loop.
/// - `Task { … }` and `Task.detached { … }` create tasks that do not inherit the preference.
/// - An actor with a custom executor, such as the main actor, runs on that executor.
///
/// `withTaskExecutorPreference(nil)` does not leave the loop, because `nil` adds no preference and the
/// previous preference stays in effect. `Task(executorPreference: nil)` does leave the loop.
///
/// Jobs run in FIFO order, regardless of task priority. A task that prefers a loop keeps the loop alive.
public final class SocketEventLoop: TaskExecutor, @unchecked Sendable {
    // See `LoopRunner` for the rules.
    //
    // Unchecked: after `init`, only `cancel()` is called on the dispatch source, and any thread may call it.
    private let runner: LoopRunner
    private let source: any DispatchSourceRead

    package init(label: String = "AsyncSockets.EventLoop") throws(SystemError) {
        let runner = try LoopRunner()
        self.runner = runner
        // There must be no errors after this line, because a source must not be released before it is
        // activated.
        source = DispatchSource.makeReadSource(fileDescriptor: runner.descriptor, queue: DispatchQueue(label: label))
        source.setEventHandler {
            LoopWatch.shared.begin()
            runner.run()
        }
        // The source stops using the epoll descriptor before the runner closes it.
        source.setCancelHandler { withExtendedLifetime(runner) {} }
        LoopWatch.shared.add(runner)
        source.activate()
    }

    deinit {
        // A run in progress finds no more handlers. The handlers are released here, outside the lock.
        let ended = runner.withTable { table in
            defer { table = LoopTable() }
            return table
        }
        withExtendedLifetime(ended) {}
        LoopWatch.shared.forget(runner)
        source.cancel()
    }

    // MARK: - Registration

    /// Registers `handler` with the loop, which keeps it alive until `deregister(_:)`.
    package func register(_ handler: any EventHandler) -> LoopRegistration {
        runner.withTable { $0.insert(handler) }
    }

    /// Removes a registration. Its handler receives no more events, except events of the batch that is
    /// currently being handled.
    package func deregister(_ registration: LoopRegistration) {
        // The handler is released here, outside the lock.
        let (handler, hasEmptied) = runner.withTable { ($0.remove(registration), $0.noteDeparture()) }
        withExtendedLifetime(handler) {}
        if hasEmptied { HeapTrimmer.shared.ask() }
    }

    /// Watches a descriptor in both directions, edge-triggered. Events that are already pending are also
    /// reported.
    package func watch(_ descriptor: some LoopDescriptor, for registration: LoopRegistration) throws(SystemError) {
        let interest = EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLPRI.rawValue | EPOLLRDHUP.rawValue | EPOLLET.rawValue
        try runner.add(descriptor.rawValue, interest, data: registration.eventData)
    }

    /// Stops watching a descriptor. Must always be called before the descriptor is closed.
    package func unwatch(_ descriptor: some LoopDescriptor) {
        runner.remove(descriptor.rawValue)
    }

    package func isRegistered(_ registration: LoopRegistration) -> Bool {
        runner.withTable { $0.handler(of: registration) != nil }
    }

    /// Whether the calling thread is running the loop.
    package var isCurrent: Bool { runner.isCurrent }

    /// Identifies the job that is running on the loop. `nil` if another thread calls.
    package var currentJob: UInt32? { runner.currentJob }

    /// Whether a thread is running the loop. `false` if the loop is idle.
    package var hasThread: Bool { runner.hasThread }

    /// Whether code on the loop has not returned for more than a second.
    package var isHeldUp: Bool { runner.isHeldUp.load(ordering: .relaxed) }

    package var registrationCount: Int {
        runner.withTable { $0.registrationCount }
    }

    /// The number of deadlines in the loop's heap, including replaced deadlines.
    package var deadlineCount: Int {
        runner.withTable { $0.deadlineCount }
    }

    /// The number of turns that were requested with `resume(_:)` and have been granted.
    package var turnCount: Int {
        runner.withTable { $0.turnCount }
    }

    // MARK: - Tasks

    /// Schedules `job` on the loop. Swift calls this method on any thread, for tasks that prefer this
    /// executor.
    public func enqueue(_ job: consuming ExecutorJob) {
        runner.enqueue(UnownedJob(job), of: self)
    }

    /// Returns a reference that does not keep the loop alive. Swift calls this method.
    public func asUnownedTaskExecutor() -> UnownedTaskExecutor {
        UnownedTaskExecutor(ordinary: self)
    }

    // MARK: - Turns and deadlines

    /// Requests a turn on the loop. Further calls before that turn have no effect.
    package func resume(_ registration: LoopRegistration) {
        runner.resume(registration)
    }

    /// Requests an event at `deadline`, replacing any previous deadline. `nil` cancels the deadline.
    package func setDeadline(_ deadline: Deadline?, of registration: LoopRegistration) {
        runner.setDeadline(deadline, of: registration)
    }

    /// Schedules `work` on `queue` after the events of this batch have been handled. All work for the same
    /// queue runs in one block. Must be called on the loop, in a handler.
    package func afterBatch(_ work: any BatchedWork, on queue: DispatchQueue) {
        runner.afterBatch(work, on: queue)
    }

    /// Notifies `handler` when the current handler or job has returned to the loop, before any other code
    /// runs there. Must be called on the loop.
    package func whenCodeReturns(_ handler: any EventHandler) {
        runner.whenCodeReturns(handler)
    }

    package func run(_ body: @escaping @Sendable () -> Void) {
        Errand(body, on: self).begin()
    }
}

/// A single call on a loop. The loop keeps this object alive until the call.
private final class Errand: EventHandler {
    private let body: @Sendable () -> Void
    private let registration = Locked<LoopRegistration?>(nil)
    private let loop: SocketEventLoop

    init(_ body: @escaping @Sendable () -> Void, on loop: SocketEventLoop) {
        self.body = body
        self.loop = loop
    }

    func begin() {
        let own = loop.register(self)
        registration.withLock { $0 = own }
        loop.resume(own)
    }

    func handle(_ events: LoopEvents) {
        if let own = registration.withLock({ $0.take() }) { loop.deregister(own) }
        body()
    }
}

// MARK: - The loops of the process

extension SocketEventLoop {
    private static let shared = Locked(LoopRotation())

    /// Returns one of the process's loops in round-robin order, skipping blocked loops. There is one loop
    /// for each usable processor. The loops are created on first use.
    ///
    /// A socket stays on its loop.
    package static func next() throws(SystemError) -> SocketEventLoop {
        try shared.withLock { shared throws(SystemError) in
            if shared.loops.isEmpty { shared = LoopRotation(try makeAll()) }
            return shared.next()
        }
    }

    /// Measures how long each event loop of the process takes to start a new job, for all loops in parallel.
    ///
    /// In an idle process, this takes a few microseconds. A loop takes longer if its sockets or tasks are
    /// busy, or if your code blocks it. The result is empty if no socket has been used yet. If the task is
    /// cancelled, loops that have not responded are missing.
    public nonisolated(nonsending) static func latencies() async -> [Duration] {
        await withTaskGroup(of: Duration?.self) { group in
            for loop in shared.withLock({ $0.loops }) { group.addTask { await loop.latency() } }
            return await group.reduce(into: []) { $0 += [$1].compactMap(\.self) }
        }
    }

    /// Returns `nil` if the task is cancelled first.
    private nonisolated(nonsending) func latency() async -> Duration? {
        let begin = ContinuousClock.now
        let waiter = Locked<UnsafeContinuation<Duration?, Never>?>(nil)
        return await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                waiter.withLock { $0 = continuation }
                if Task.isCancelled { waiter.withLock { $0.take() }?.resume(returning: nil) }
                run { waiter.withLock { $0.take() }?.resume(returning: begin.duration(to: .now)) }
            }
        } onCancel: {
            waiter.withLock { $0.take() }?.resume(returning: nil)
        }
    }

    /// The number of CPUs available to this process: the size of its affinity mask, capped by the cgroup CPU
    /// quota (rounded up).
    package static var usableProcessors: Int {
        ProcessorQuota.current.threadCount(usable: Int(CLinux_usable_processors()))
    }

    /// Creates all loops or none. If descriptors run out, the next call starts over.
    private static func makeAll() throws(SystemError) -> [SocketEventLoop] {
        var loops: [SocketEventLoop] = []
        for number in 0..<usableProcessors {
            loops.append(try SocketEventLoop(label: "AsyncSockets.EventLoop.\(number)"))
        }
        return loops
    }
}

package struct LoopRotation {
    fileprivate let loops: [SocketEventLoop]
    private var position = 0

    package init(_ loops: [SocketEventLoop] = []) {
        self.loops = loops
    }

    /// Returns the next loop that is not blocked. If all loops are blocked, returns the next loop. There
    /// must be at least one loop.
    package mutating func next() -> SocketEventLoop {
        let first = (position + 1) % loops.count
        position = first
        for _ in loops.indices where loops[position].isHeldUp { position = (position + 1) % loops.count }
        return loops[position]
    }
}

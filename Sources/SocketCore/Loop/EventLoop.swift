internal import CLinux
package import Dispatch
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// One thread that serves many sockets and the tasks that prefer it; no thread while all of them are quiet.
///
/// A loop waits for the events of its sockets, handles them, and runs jobs of tasks in between. A task that
/// runs on the loop of its socket needs no change of threads between an event and the code that waits for it:
///
///     Task(executorPreference: loop) { … }
///     await withTaskExecutorPreference(loop) { … }
///
/// The preference holds for the child tasks too, for actors without an executor of their own, and for
/// functions that are `@concurrent`.
///
/// Only short work that does not block belongs on a loop: its other sockets and tasks wait meanwhile, for as
/// long as it takes. Other loops go on. After a second the log names the connection whose callback or task it
/// is, and new connections get other loops. Reads and writes let the others go first about once in a
/// millisecond. A task that calculates for long calls `Task.yield()` now and then, or leaves the loop:
///
/// - `await withTaskExecutorPreference(globalConcurrentExecutor) { … }` runs on the threads of Swift, and
///   comes back afterwards.
/// - `Task { … }` and `Task.detached { … }` make tasks that do not inherit the preference.
/// - An actor with an executor of its own, the main actor among them, runs on that one.
///
/// `withTaskExecutorPreference(nil)` does not leave the loop: nil adds no preference, and the one before
/// holds. `Task(executorPreference: nil)` does leave it.
///
/// Jobs run in the order in which they come; the priorities of tasks do not count. A task that prefers a loop
/// keeps it alive.
public final class EventLoop: TaskExecutor, @unchecked Sendable {
    // `LoopRunner` has the rules.
    //
    // Unchecked: nothing is used of a dispatch source after `init` but `cancel()`, which any thread may call.
    private let runner: LoopRunner
    private let source: any DispatchSourceRead

    package init(label: String = "AsyncSockets.EventLoop") throws(SystemError) {
        let runner = try LoopRunner()
        self.runner = runner
        // Nothing fails from here on: a source must not be released before it was activated.
        source = DispatchSource.makeReadSource(fileDescriptor: runner.descriptor, queue: DispatchQueue(label: label))
        source.setEventHandler {
            LoopWatch.shared.begin()
            runner.run()
        }
        // The source lets go of the epoll descriptor before the runner closes it.
        source.setCancelHandler { withExtendedLifetime(runner) {} }
        LoopWatch.shared.add(runner)
        source.activate()
    }

    deinit {
        // A run that is under way finds no handlers any more. They are released here, outside the lock.
        let ended = runner.withTable { table in
            defer { table = LoopTable() }
            return table
        }
        withExtendedLifetime(ended) {}
        LoopWatch.shared.forget(runner)
        source.cancel()
    }

    // MARK: - Registering

    /// Makes `handler` known to the loop, which keeps it alive until `deregister(_:)`.
    package func register(_ handler: any EventHandler) -> LoopRegistration {
        runner.withTable { $0.insert(handler) }
    }

    /// Ends a registration: no event reaches its handler afterwards, except events of the batch that is being
    /// handled now.
    package func deregister(_ registration: LoopRegistration) {
        // The handler is released here, outside the lock.
        let (handler, hasEmptied) = runner.withTable { ($0.remove(registration), $0.noteDeparture()) }
        withExtendedLifetime(handler) {}
        if hasEmptied { HeapTrimmer.shared.ask() }
    }

    /// Watches a descriptor in both directions, edge-triggered; what is ready already is reported too.
    package func watch(_ descriptor: some LoopDescriptor, for registration: LoopRegistration) throws(SystemError) {
        let interest = EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLPRI.rawValue | EPOLLRDHUP.rawValue | EPOLLET.rawValue
        try runner.add(descriptor.rawValue, interest, data: registration.eventData)
    }

    /// Stops watching a descriptor. Call it before the descriptor is closed, always.
    package func unwatch(_ descriptor: some LoopDescriptor) {
        runner.remove(descriptor.rawValue)
    }

    /// False when a registration has ended.
    package func isRegistered(_ registration: LoopRegistration) -> Bool {
        runner.withTable { $0.handler(of: registration) != nil }
    }

    /// True on the thread that runs the loop now.
    package var isCurrent: Bool { runner.isCurrent }

    /// False when the loop is idle.
    package var hasThread: Bool { runner.hasThread }

    /// True when code on the loop has not returned for more than a second.
    package var isHeldUp: Bool { runner.isHeldUp.load(ordering: .relaxed) }

    package var registrationCount: Int {
        runner.withTable { $0.registrationCount }
    }

    /// How many deadlines the loop keeps, replaced ones among them.
    package var deadlineCount: Int {
        runner.withTable { $0.deadlineCount }
    }

    /// The number of turns that were requested by `resume(_:)` and given.
    package var turnCount: Int {
        runner.withTable { $0.turnCount }
    }

    // MARK: - Tasks

    /// Has `job` run on the loop. Swift calls it, on any thread, for tasks that prefer this executor.
    public func enqueue(_ job: consuming ExecutorJob) {
        runner.enqueue(UnownedJob(job), of: self)
    }

    /// A reference to the loop that does not keep it alive. Swift calls it.
    public func asUnownedTaskExecutor() -> UnownedTaskExecutor {
        UnownedTaskExecutor(ordinary: self)
    }

    // MARK: - Turns and deadlines

    /// Asks for a turn on the loop; any number of calls before it comes count as one.
    package func resume(_ registration: LoopRegistration) {
        runner.resume(registration)
    }

    /// Asks for an event at `deadline`, in place of the one asked for before; nil: none.
    package func setDeadline(_ deadline: Deadline?, of registration: LoopRegistration) {
        runner.setDeadline(deadline, of: registration)
    }

    /// On the loop, in a handler: has `work` run on `queue` when the events of this batch have been handled,
    /// in one block with all other work for that queue.
    package func afterBatch(_ work: any BatchedWork, on queue: DispatchQueue) {
        runner.afterBatch(work, on: queue)
    }

    /// On the loop: has `handler` learn when the handler or the job that runs now has returned to the loop,
    /// before anything else runs there.
    package func whenCodeReturns(_ handler: any EventHandler) {
        runner.whenCodeReturns(handler)
    }

    /// Calls `body` on the loop, once.
    package func run(_ body: @escaping @Sendable () -> Void) {
        Errand(body, on: self).begin()
    }
}

/// One call on the loop, which it keeps alive until then.
private final class Errand: EventHandler {
    private let body: @Sendable () -> Void
    private let registration = Locked<LoopRegistration?>(nil)
    private let loop: EventLoop

    init(_ body: @escaping @Sendable () -> Void, on loop: EventLoop) {
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

extension EventLoop {
    private static let shared = Locked(LoopRotation())

    /// One of the process's loops, in turn: one for each processor it may use, made when first needed. A loop
    /// that is held up is passed over.
    ///
    /// A socket stays on its loop.
    package static func next() throws(SystemError) -> EventLoop {
        try shared.withLock { shared throws(SystemError) in
            if shared.loops.isEmpty { shared = LoopRotation(try makeAll()) }
            return shared.next()
        }
    }

    /// How many processors the process may use: the processors it may run on, limited by the quota of its
    /// control groups, rounded up.
    package static var usableProcessors: Int {
        ProcessorQuota.current.threadCount(usable: Int(CLinux_usable_processors()))
    }

    /// All or none: when descriptors run out halfway, the next call begins again.
    private static func makeAll() throws(SystemError) -> [EventLoop] {
        var loops: [EventLoop] = []
        for number in 0..<usableProcessors {
            loops.append(try EventLoop(label: "AsyncSockets.EventLoop.\(number)"))
        }
        return loops
    }
}

/// Loops in turn.
package struct LoopRotation {
    fileprivate let loops: [EventLoop]
    private var position = 0

    package init(_ loops: [EventLoop] = []) {
        self.loops = loops
    }

    /// The next one that is not held up; if all are, the next one. There must be a loop.
    package mutating func next() -> EventLoop {
        let first = (position + 1) % loops.count
        position = first
        for _ in loops.indices where loops[position].isHeldUp { position = (position + 1) % loops.count }
        return loops[position]
    }
}

// Rules of the loop:
//  1. It has one epoll descriptor, watched by one dispatch source on one serial queue. While there is
//     traffic, the source's handler stays in `epoll_wait`. The handler returns, which frees its thread, when
//     a full period of the idle timer has passed without an event.
//  2. No blocks are dispatched to the loop's queue, because a busy loop would never run them. Other threads
//     communicate with the loop through its lock, `epoll_ctl`, the `eventfd` (to request a turn) and a
//     `timerfd` (for deadlines).
//  3. A descriptor is added once, edge-triggered, and removed before it is closed.
//  4. An event identifies an entry in the table and its generation. An entry that was removed from the table
//     receives no more events, even if its descriptor number is reused.
//  5. Handlers run one at a time, without any lock held. A handler with more work moves to the back of the
//     list.
//  6. Task jobs run after each handler and at the end of a batch, in FIFO order. A batch runs at least one
//     job and at most `jobsPerBatch`, and stops when the time of the `JobBudget` is used up. The kernel is
//     then polled for events, without blocking if jobs are left. A job also suspends when the time is used
//     up, even if all its operations complete immediately. This way, neither jobs nor events starve the
//     other.
//  7. The loop's own thread adds jobs directly to the list. Other threads add jobs to the arrivals while
//     holding the lock, and each batch starts by moving the arrivals to the list.
//  8. A loop that is serving a batch checks all lists before it blocks. It therefore needs to be woken only
//     while it is blocked or has no thread, and only once, regardless of how much work arrives.
//  9. Jobs keep the loop alive until all of them have run and no other thread is about to write to the
//     `eventfd`. Otherwise, the completion of the last task could release the loop while the thread that
//     enqueued the last job is still about to wake it.
// 10. A handler passed to `whenCodeReturns` is notified right after the current handler or job returns. If
//     other code calls it, such as a deinit in between, the handler is notified at the end of the batch.

internal import CLinux
internal import Dispatch
internal import Glibc
internal import Logging
internal import SocketBuffers
internal import Synchronization

/// The part of an event loop that runs on its thread, including the state that other threads change.
///
/// The dispatch source owns the runner. The runner therefore exists until the last run has finished, and the
/// loop needs no weak reference to itself. Weak references would move the object's reference count to a side
/// table, which makes every retain and release three times as expensive.
final class LoopRunner: @unchecked Sendable {
    // Unchecked: `ready`, `jobs`, `arrived`, `departures`, `waitingForReturn`, `events`, `hasServed`,
    // `hasRunJobs`, `isIdle`, `failing` and `budget` are used only in `run()`, which runs on a serial queue,
    // and in the code that it calls. All other properties are immutable, atomic or locked.
    private let epoll: OwnedDescriptor
    private let timer: OwnedDescriptor
    private let wake: OwnedDescriptor
    /// Fires periodically while the loop runs, so that one timer serves many waits. With a timeout for
    /// `epoll_wait`, the kernel would set a timer on each call.
    private let idleTimer: OwnedDescriptor
    private let state = Locked(State())
    /// The thread that runs the loop, or zero. A thread finds its own ID in this property only while it runs
    /// the loop.
    private let thread = Atomic<pthread_t>(0)
    /// Incremented at the start and at the end of each batch, so it is odd during a batch.
    private let rounds = Atomic<UInt>(0)
    /// Whether `LoopWatch` has found that code on the loop has not returned for a long time.
    let isHeldUp = Atomic(false)
    /// The address of the handler that is running or ran last. Zero while jobs run.
    private let running = Atomic<UInt>(0)
    private let budget = JobBudget()
    @exclusivity(unchecked) private var ready = Ring<LoopTable.Ready>()
    @exclusivity(unchecked) private var jobs = LoopJobs()
    /// Arrivals being moved from `state` to `jobs`. Empty between batches.
    @exclusivity(unchecked) private var arrived = LoopJobArrivals()
    @exclusivity(unchecked) private var departures: [(queue: DispatchQueue, work: [any BatchedWork])] = []
    /// The handlers of rule 10.
    @exclusivity(unchecked) private var waitingForReturn: [any EventHandler] = []
    /// Whether there were events or jobs since the idle timer last fired.
    @exclusivity(unchecked) private var hasServed = false
    /// Whether jobs have run since the executor was last dropped.
    @exclusivity(unchecked) private var hasRunJobs = false
    @exclusivity(unchecked) private var isIdle = false
    @exclusivity(unchecked) private var failing = FailingCall()
    private let events = UnsafeMutablePointer<epoll_event>.allocate(capacity: LoopRunner.batchSize)

    private struct State {
        var table = LoopTable()
        var arrivals = LoopJobArrivals()
        var armed: Deadline?
        var wakefulness = LoopWakefulness()
    }

    private static let batchSize = 128
    private static let jobsPerBatch = 256
    /// If a batch has fewer connections than this, the loop continues without yielding.
    private static let yieldThreshold = 4
    /// Nanoseconds. An idle loop keeps its thread for one to two periods. A shorter period would wake the
    /// processor more often, which adds latency under low traffic.
    private static let idlePeriod = 20_000_000
    private static let timerData = UInt64.max
    private static let wakeData = UInt64.max - 1
    private static let idleTimerData = UInt64.max - 2

    init() throws(SystemError) {
        epoll = try OwnedDescriptor("epoll_create1", epoll_create1(CInt(EPOLL_CLOEXEC)))
        timer = try .timer()
        wake = try OwnedDescriptor("eventfd", eventfd(0, CInt(EFD_NONBLOCK | EFD_CLOEXEC)))
        idleTimer = try .timer()
        let interest = EPOLLIN.rawValue | EPOLLET.rawValue
        try add(timer.rawValue, interest, data: Self.timerData)
        try add(wake.rawValue, interest, data: Self.wakeData)
        try add(idleTimer.rawValue, interest, data: Self.idleTimerData)
    }

    deinit { events.deallocate() }

    // MARK: - On any thread

    /// The descriptor that the dispatch source watches.
    var descriptor: CInt { epoll.rawValue }

    var hasThread: Bool { thread.load(ordering: .relaxed) != 0 }

    var isCurrent: Bool { thread.load(ordering: .relaxed) == pthread_self() }

    var currentJob: UInt32? { isCurrent ? budget.jobNumber : nil }

    /// Changes when a batch starts or finishes.
    var round: UInt { rounds.load(ordering: .relaxed) }

    /// Returns `false` if the loop does not serve a batch in that round.
    static func isServing(inRound round: UInt) -> Bool { round & 1 == 1 }

    /// The address of the running handler, or of the handler that the current job used last. Zero if
    /// unknown.
    var user: UInt {
        let handler = running.load(ordering: .relaxed)
        return handler != 0 ? handler : budget.user.load(ordering: .relaxed)
    }

    func handler(at address: UInt) -> (any EventHandler)? {
        withTable { $0.handler(at: address) }
    }

    /// Calls `body` while holding the lock.
    func withTable<Result>(_ body: (inout LoopTable) -> Result) -> Result {
        state.withLock { body(&$0.table) }
    }

    func add(_ descriptor: CInt, _ interest: UInt32, data: UInt64) throws(SystemError) {
        var event = epoll_event(events: interest, data: epoll_data_t(u64: data))
        guard epoll_ctl(epoll.rawValue, EPOLL_CTL_ADD, descriptor, &event) == 0 else { throw SystemError("epoll_ctl") }
    }

    func remove(_ descriptor: CInt) {
        _ = epoll_ctl(epoll.rawValue, EPOLL_CTL_DEL, descriptor, nil)
    }

    func resume(_ registration: LoopRegistration) {
        let mustWake = state.withLock { state in
            state.table.resume(registration) && state.wakefulness.mustWake()
        }
        if mustWake { eventfd_write(wake.rawValue, 1) }
    }

    /// Schedules `job` on the loop. `executor` is the loop itself.
    func enqueue(_ job: UnownedJob, of executor: some TaskExecutor) {
        if isCurrent {
            jobs.append(job, of: executor)
            return
        }
        let mustWake = state.withLock { state in
            state.arrivals.append(job, of: executor)
            return state.wakefulness.mustWake()
        }
        // The job may already have run, and from then on only `isWoken` may be keeping the loop alive.
        if mustWake { eventfd_write(wake.rawValue, 1) }
    }

    func setDeadline(_ deadline: Deadline?, of registration: LoopRegistration) {
        state.withLock { state in
            state.table.setDeadline(deadline, of: registration)
            armTimer(&state)
        }
    }

    private func armTimer(_ state: inout State) {
        guard let earliest = state.table.earliestDeadline else { return }
        if let armed = state.armed, armed <= earliest { return }
        state.armed = earliest
        var specification = earliest.timerSpecification
        timerfd_settime(timer.rawValue, CInt(TFD_TIMER_ABSTIME), &specification, nil)
    }

    // MARK: - On the loop

    /// Serves events until the loop has been idle for a while.
    func run() {
        thread.store(pthread_self(), ordering: .relaxed)
        budget.enterThread()
        setIdleTimer(Self.idlePeriod)
        var mustPoll = true
        while true {
            let count = epoll_wait(epoll.rawValue, events, CInt(Self.batchSize), mustPoll || isIdle ? 0 : -1)
            if count < 0 {
                if errno == EINTR { continue }
                // The descriptor was closed by other code, or a system call filter rejects the call. Do not
                // spin.
                isIdle = true
                pause(after: SystemError("epoll_wait"))
            } else {
                failing.succeed()
            }
            nextRound()
            mustPoll = serve(eventCount: Int(max(count, 0)))
            nextRound()
            if count <= 0, !mustPoll, isIdle, leave() { return }
        }
    }

    /// Blocking the thread delays no events, because no events can arrive during the pause.
    private func pause(after error: SystemError) {
        guard case .pause(let seconds, let isFirst) = failing.note(error, isShortage: true) else { return }
        if isFirst {
            socketLog.withLock { $0 }.error("an event loop cannot receive events", metadata: ["error": "\(error)"])
        }
        poll(nil, 0, CInt(seconds * 1000))
    }

    private func nextRound() {
        rounds.store(rounds.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
    }

    /// - Parameter period: Nanoseconds. Zero stops the timer.
    private func setIdleTimer(_ period: Int) {
        isIdle = false
        hasServed = false
        let interval = timespec(tv_sec: 0, tv_nsec: period)
        var specification = itimerspec(it_interval: interval, it_value: interval)
        timerfd_settime(idleTimer.rawValue, 0, &specification, nil)
    }

    /// Serves one batch. Returns `true` if handlers or jobs are still queued.
    private func serve(eventCount: Int) -> Bool {
        state.withLock { state in
            state.wakefulness.isServing = true
            // Requested turns are older than the events that the kernel just reported, so they run first.
            state.table.takeResumed(into: &ready)
            for event in UnsafeBufferPointer(start: events, count: eventCount) { collect(event, &state) }
            if !state.arrivals.isEmpty { swap(&state.arrivals, &arrived) }
        }
        if !arrived.isEmpty { jobs.append(&arrived) }
        budget.beginBatch()
        var jobsLeft = Self.jobsPerBatch
        // Keeps capacity for a full batch and as many turns, to avoid allocating it each time.
        while let next = ready.popFirst(keepingCapacity: 2 * Self.batchSize) {
            running.store(next.address, ordering: .relaxed)
            next.handler.handle(next.events)
            if !waitingForReturn.isEmpty { reportReturn() }
            if !jobs.isEmpty { runJobs(&jobsLeft) }
        }
        if !jobs.isEmpty { runJobs(&jobsLeft) }
        if !departures.isEmpty { depart() }
        if !waitingForReturn.isEmpty { reportReturn() }
        let (isServing, isWoken, wantsBlocks) = state.withLock { state in
            state.wakefulness.isServing =
                state.table.hasResumed || !state.arrivals.isEmpty || !jobs.isEmpty || budget.hasWaiting
            return (state.wakefulness.isServing, state.wakefulness.isWoken, state.table.takeWishForBlocks())
        }
        if wantsBlocks { HeapTrimmer.shared.keepBlocks() }
        if hasRunJobs, !isServing, !isWoken {
            hasRunJobs = false
            jobs.dropExecutor()
        }
        return isServing
    }

    /// Runs jobs, including new arrivals on this thread, until the list is empty or `limit` or the time is
    /// used up.
    private func runJobs(_ limit: inout Int) {
        guard let executor = jobs.unownedExecutor else { return }
        running.store(0, ordering: .relaxed)
        hasRunJobs = true
        hasServed = true
        isIdle = false
        while limit > 0, let job = jobs.popFirst() {
            limit -= 1
            budget.beginJob()
            job.runSynchronously(on: executor)
            if !waitingForReturn.isEmpty { reportReturn() }
            if !jobs.isEmpty, budget.isOver { limit = 0 }
        }
    }

    func whenCodeReturns(_ handler: any EventHandler) {
        waitingForReturn.append(handler)
    }

    private func reportReturn() {
        while let handler = waitingForReturn.popLast() { handler.codeHasReturned() }
    }

    private func collect(_ event: epoll_event, _ state: inout State) {
        switch event.data.u64 {
        case Self.wakeData:
            var count: eventfd_t = 0
            eventfd_read(wake.rawValue, &count)
            state.wakefulness.isWoken = false
        case Self.timerData:
            timer.takeExpirations()
            state.armed = nil
            state.table.takeExpired(at: .now, into: &ready)
            armTimer(&state)
        case Self.idleTimerData:
            idleTimer.takeExpirations()
            isIdle = !hasServed
            hasServed = false
        case let data:
            hasServed = true
            isIdle = false
            guard let handler = state.table.handler(of: LoopRegistration(eventData: data)) else { return }
            ready.append(LoopTable.Ready(handler: handler, events: LoopEvents(epoll: event.events)))
        }
    }

    func afterBatch(_ work: any BatchedWork, on queue: DispatchQueue) {
        if let index = departures.lastIndex(where: { $0.queue === queue }) {
            departures[index].work.append(work)
        } else {
            departures.append((queue, [work]))
        }
    }

    private func depart() {
        var count = 0
        for (queue, work) in departures {
            count += work.count
            let tickets = work.map { $0.takeTicket() }
            queue.async {
                for (work, ticket) in zip(work, tickets) { work.run(upTo: ticket, on: queue) }
            }
        }
        departures.removeAll(keepingCapacity: true)
        // If the queue and the loop share a processor, this lets the queue run first. Otherwise, each
        // response that the queue sends would wake the loop, which would take the processor from the queue
        // to handle a single event. That would be half the cost of an echo.
        if count >= Self.yieldThreshold { sched_yield() }
    }

    /// Gives up the thread and returns `true`, unless more work has been requested.
    private func leave() -> Bool {
        let leaves = state.withLock { !$0.table.hasResumed && $0.arrivals.isEmpty }
        if leaves {
            thread.store(0, ordering: .relaxed)
            budget.leaveThread()
            setIdleTimer(0)
        }
        return leaves
    }
}

/// Whether a loop must be woken (rule 8).
struct LoopWakefulness {
    /// Another thread has written or is about to write to the `eventfd`, and the loop has not read it yet.
    var isWoken = false
    /// The loop will check its lists before it blocks.
    var isServing = false

    /// Called by a thread that has added work to a list. Returns `true` if the thread must write to the
    /// `eventfd`.
    mutating func mustWake() -> Bool {
        if isServing || isWoken { return false }
        isWoken = true
        return true
    }
}

/// A descriptor used internally by the loop. It is closed when the last reference is released.
private final class OwnedDescriptor: Sendable {
    let rawValue: CInt

    init(_ call: String, _ rawValue: CInt) throws(SystemError) {
        guard rawValue >= 0 else { throw SystemError(call) }
        self.rawValue = rawValue
    }

    static func timer() throws(SystemError) -> OwnedDescriptor {
        try OwnedDescriptor("timerfd_create", timerfd_create(CLOCK_MONOTONIC, CInt(TFD_NONBLOCK | TFD_CLOEXEC)))
    }

    deinit { close(rawValue) }

    /// Reads the timer, so that the next expiration causes another event.
    func takeExpirations() {
        var count: UInt64 = 0
        _ = read(rawValue, &count, MemoryLayout<UInt64>.size)
    }
}

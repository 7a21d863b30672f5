// Rules of the loop:
//  1. One epoll descriptor, watched by one dispatch source on one serial queue. While there is traffic the
//     source's handler stays in `epoll_wait`. It returns, and holds no thread, when a whole period of the
//     idle timer has passed without an event.
//  2. Nothing is ever put on the loop's queue: a busy loop would never get to it. Others reach the loop by
//     its lock, by `epoll_ctl`, by the `eventfd` (another turn is wanted) and by a `timerfd` (a deadline).
//  3. A descriptor is added once, edge-triggered, and deleted before it is closed.
//  4. An event names an entry of the table and its generation. An entry that has left the table gets no more
//     events, whichever descriptor has its number now.
//  5. Handlers run with no lock held, one after the other; one with more to do goes to the back of the list.
//  6. Jobs of tasks run after each handler and at the end of a batch, in the order in which they came. A
//     batch runs at least one, and at most `jobsPerBatch` in the time of the `JobBudget`: then the kernel is
//     asked for events, without waiting while jobs are left. A job whose operations are all served at once
//     suspends when that time is used up. So neither jobs nor events hold up the others.
//  7. The loop's own thread puts a job on the list directly. Other threads put theirs among the arrivals,
//     under the lock; each batch begins with taking them over.
//  8. A loop that serves looks at all lists before it waits, so it is woken only while it waits or has no
//     thread, and once, however much comes.
//  9. Jobs keep the loop alive until all of them have run and no other thread is about to write to the
//     `eventfd`. The end of the last task may otherwise release the loop while the thread that brought its
//     last job is still on its way to wake it.
// 10. A handler that waits for the return of the code that runs (`whenCodeReturns`) learns of it right
//     after that handler or job. Other code, such as a deinit in between, returns at the end of the batch.

internal import CLinux
internal import Dispatch
internal import Glibc
internal import Logging
internal import SocketBuffers
internal import Synchronization

/// The part of an event loop that runs on its thread, and the state that other threads change meanwhile.
///
/// The dispatch source owns it: so it lives until the last run is over, and the loop needs no weak reference
/// to itself. An object with weak references keeps its count in a table of its own, and each retain and
/// release costs three times as much.
final class LoopRunner: @unchecked Sendable {
    // Unchecked: `ready`, `jobs`, `arrived`, `departures`, `waitingForReturn`, `events`, `hasServed`,
    // `hasRunJobs`, `isIdle`, `failing` and `budget` are used only in `run()`, which a serial queue runs, and
    // in what it calls; all else is immutable, atomic or locked.
    private let epoll: OwnedDescriptor
    private let timer: OwnedDescriptor
    private let wake: OwnedDescriptor
    /// Fires periodically while the loop runs: one timer for many waits. With a limit on each wait the kernel
    /// would set a timer for each.
    private let idleTimer: OwnedDescriptor
    private let state = Locked(State())
    /// The thread that runs the loop; zero: none. A thread finds its own number here only while it does.
    private let thread = Atomic<pthread_t>(0)
    /// Counts waits for events and batches: odd during a batch.
    private let rounds = Atomic<UInt>(0)
    /// Code that runs on the loop has not returned for long: the `LoopWatch` says so.
    let isHeldUp = Atomic(false)
    /// The address of the handler that runs or has run last; zero while jobs run.
    private let running = Atomic<UInt>(0)
    private let budget = JobBudget()
    @exclusivity(unchecked) private var ready = Ring<LoopTable.Ready>()
    @exclusivity(unchecked) private var jobs = LoopJobs()
    /// Arrivals on their way from `state` to `jobs`; empty between batches.
    @exclusivity(unchecked) private var arrived = LoopJobArrivals()
    @exclusivity(unchecked) private var departures: [(queue: DispatchQueue, work: [any BatchedWork])] = []
    /// By rule 10.
    @exclusivity(unchecked) private var waitingForReturn: [any EventHandler] = []
    /// Something has come since the idle timer last fired.
    @exclusivity(unchecked) private var hasServed = false
    /// Jobs have run, and what they use is not put away yet.
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
    /// With fewer connections than this in a batch the loop goes on at once.
    private static let yieldThreshold = 4
    /// An idle loop keeps its thread for between once and twice this. A shorter period wakes the processor
    /// more often, which adds latency when there is little traffic.
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

    // MARK: - From any thread

    /// The descriptor that the dispatch source watches.
    var descriptor: CInt { epoll.rawValue }

    /// False when the loop is idle.
    var hasThread: Bool { thread.load(ordering: .relaxed) != 0 }

    /// True on the thread that runs the loop.
    var isCurrent: Bool { thread.load(ordering: .relaxed) == pthread_self() }

    /// Another number means that the loop has come round.
    var round: UInt { rounds.load(ordering: .relaxed) }

    /// False when the loop waits for events.
    static func isServing(inRound round: UInt) -> Bool { round & 1 == 1 }

    /// The address of the handler that runs, or whose operation a task on the loop has used last; zero:
    /// unknown.
    var user: UInt {
        let handler = running.load(ordering: .relaxed)
        return handler != 0 ? handler : budget.user.load(ordering: .relaxed)
    }

    func handler(at address: UInt) -> (any EventHandler)? {
        withTable { $0.handler(at: address) }
    }

    /// Calls `body` with the lock held.
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

    /// Has `job` run on the loop, which `executor` is.
    func enqueue(_ job: UnownedJob, of executor: some TaskExecutor) {
        if isCurrent {
            jobs.append(job, of: executor)
            return
        }
        let mustWake = state.withLock { state in
            state.arrivals.append(job, of: executor)
            return state.wakefulness.mustWake()
        }
        // The job may have run by now, and nothing may keep the loop alive but `isWoken`.
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

    /// Serves events until there have been none for a while.
    func run() {
        thread.store(pthread_self(), ordering: .relaxed)
        budget.enterThread()
        setIdleTimer(Self.idlePeriod)
        var mustPoll = true
        while true {
            let count = epoll_wait(epoll.rawValue, events, CInt(Self.batchSize), mustPoll || isIdle ? 0 : -1)
            if count < 0 {
                if errno == EINTR { continue }
                // The descriptor was closed elsewhere, or a system call filter refuses the call. Do not spin.
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

    /// Blocking the thread delays no events, because none can arrive during the pause.
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

    /// - Parameter period: Nanoseconds; zero stops the timer.
    private func setIdleTimer(_ period: Int) {
        isIdle = false
        hasServed = false
        let interval = timespec(tv_sec: 0, tv_nsec: period)
        var specification = itimerspec(it_interval: interval, it_value: interval)
        timerfd_settime(idleTimer.rawValue, 0, &specification, nil)
    }

    /// Serves one batch; true when handlers or jobs wait for another turn.
    private func serve(eventCount: Int) -> Bool {
        state.withLock { state in
            state.wakefulness.isServing = true
            // Turns that were asked for are older than what the kernel says now, and come first.
            state.table.takeResumed(into: &ready)
            for event in UnsafeBufferPointer(start: events, count: eventCount) { collect(event, &state) }
            if !state.arrivals.isEmpty { swap(&state.arrivals, &arrived) }
        }
        if !arrived.isEmpty { jobs.append(&arrived) }
        budget.beginBatch()
        var jobsLeft = Self.jobsPerBatch
        // Room for a full batch and as many turns is kept, so that it is not allocated again each time.
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

    /// Runs jobs, also those that come meanwhile, until no job waits, or `limit` or the time is used up.
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

    /// In a handler: has `work` run on `queue` after this batch of events.
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
        // Where queue and loop share a processor, the queue goes first. Otherwise each answer that it sends
        // wakes the loop, which takes the processor away from it for one event: half of the cost of an echo.
        if count >= Self.yieldThreshold { sched_yield() }
    }

    /// Returns the thread, unless something has been asked for meanwhile.
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

/// Whether a loop has to be woken, by rule 8.
struct LoopWakefulness {
    /// A thread writes to the `eventfd`, or has written, and the loop has not read it yet.
    var isWoken = false
    /// The loop will look at its lists before it waits.
    var isServing = false

    /// For a thread that has added something to a list: true when it must write to the `eventfd`.
    mutating func mustWake() -> Bool {
        if isServing || isWoken { return false }
        isWoken = true
        return true
    }
}

/// A descriptor of the loop's own, closed with its last reference.
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

    /// Reads a timer, so that the next expiration is another event.
    func takeExpirations() {
        var count: UInt64 = 0
        _ = read(rawValue, &count, MemoryLayout<UInt64>.size)
    }
}

// Rules of the loop:
//  1. One epoll descriptor, watched by one dispatch source on one serial queue. While there is traffic the
//     source's handler stays in `epoll_wait`; when a periodic timer (`patience`) finds that there was none it
//     returns and holds no thread.
//  2. Nothing is ever posted to the loop's queue: a busy loop would never get to it. Others reach the loop by
//     its lock, by `epoll_ctl`, by the `eventfd` (another turn is wanted) and by a `timerfd` (a deadline).
//  3. A descriptor is added once, edge-triggered, and deleted before it is closed.
//  4. An event names a place in the table and its generation. What has left the table gets no more events,
//     whoever has its number now.
//  5. Handlers run with no lock held, one after the other; one with more to do goes to the back of the list.

internal import CLinux
package import Dispatch
internal import Glibc
internal import SocketBuffers

/// Serves many sockets on one thread at a time, and none while they are quiet.
package final class EventLoop: @unchecked Sendable {
    // Unchecked: `ready`, `departures`, `events`, `hasServed` and `isOutOfPatience` are only used by `run()`,
    // which a serial queue runs; all else is immutable or locked.
    private let epoll: OwnedDescriptor
    private let timer: OwnedDescriptor
    private let wake: OwnedDescriptor
    /// Rings while the loop runs: one timer for many waits. A limit on each wait would have the kernel set
    /// one for each.
    private let patience: OwnedDescriptor
    private let source: any DispatchSourceRead
    private let state = Locked(State())
    @exclusivity(unchecked) private var ready = Ring<LoopTable.Ready>()
    @exclusivity(unchecked) private var departures: [(queue: DispatchQueue, work: [any BatchedWork])] = []
    /// Something has come since `patience` last rang.
    @exclusivity(unchecked) private var hasServed = false
    @exclusivity(unchecked) private var isOutOfPatience = false
    private let events = UnsafeMutableBufferPointer<epoll_event>.allocate(capacity: EventLoop.batchSize)

    private struct State {
        var table = LoopTable()
        var armed: Deadline?
        var isWoken = false
        var runner: pthread_t?
    }

    private static let batchSize = 128
    /// With fewer connections than this in a batch the loop goes on at once.
    private static let yieldThreshold = 4
    /// How long the loop waits for more before it gives its thread back: between once and twice this.
    private static let patienceNanoseconds = 2_000_000
    private static let timerData = UInt64.max
    private static let wakeData = UInt64.max - 1
    private static let patienceData = UInt64.max - 2

    package init(label: String = "AsyncSockets.EventLoop") throws(SystemError) {
        let epoll = try OwnedDescriptor("epoll_create1", epoll_create1(CInt(EPOLL_CLOEXEC)))
        let timer = try OwnedDescriptor("timerfd_create", timerfd_create(CLOCK_MONOTONIC, CInt(TFD_NONBLOCK | TFD_CLOEXEC)))
        let wake = try OwnedDescriptor("eventfd", eventfd(0, CInt(EFD_NONBLOCK | EFD_CLOEXEC)))
        try Self.add(timer.rawValue, to: epoll, interest: EPOLLIN.rawValue | EPOLLET.rawValue, data: Self.timerData)
        try Self.add(wake.rawValue, to: epoll, interest: EPOLLIN.rawValue | EPOLLET.rawValue, data: Self.wakeData)
        let patience = try OwnedDescriptor("timerfd_create", timerfd_create(CLOCK_MONOTONIC, CInt(TFD_NONBLOCK | TFD_CLOEXEC)))
        try Self.add(patience.rawValue, to: epoll, interest: EPOLLIN.rawValue | EPOLLET.rawValue, data: Self.patienceData)
        (self.epoll, self.timer, self.wake, self.patience) = (epoll, timer, wake, patience)
        // Nothing fails from here on: a source must not be released before it was activated.
        source = DispatchSource.makeReadSource(fileDescriptor: epoll.rawValue, queue: DispatchQueue(label: label))
        source.setEventHandler { [weak self] in self?.run() }
        // The source lets go of the descriptors when it is done with them.
        source.setCancelHandler { withExtendedLifetime((epoll, timer, wake, patience)) {} }
        source.activate()
    }

    deinit {
        source.cancel()
        events.deallocate()
    }

    // MARK: - Registering

    /// Gives `handler` a place in the loop; it is kept alive until `deregister(_:)`.
    package func register(_ handler: any EventHandler) -> LoopRegistration {
        state.withLock { $0.table.insert(handler) }
    }

    /// Ends a registration: no event reaches its handler afterwards, except those of the batch that is being
    /// handled now.
    package func deregister(_ registration: LoopRegistration) {
        // The handler is released here, outside the lock.
        let (handler, hasEmptied) = state.withLock { ($0.table.remove(registration), $0.table.noteDeparture()) }
        withExtendedLifetime(handler) {}
        if hasEmptied { HeapTrimmer.shared.ask() }
    }

    /// Watches a descriptor in both directions, edge-triggered; what is ready already is reported too.
    package func watch(_ descriptor: some LoopDescriptor, for registration: LoopRegistration) throws(SystemError) {
        let interest = EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLPRI.rawValue | EPOLLRDHUP.rawValue | EPOLLET.rawValue
        try Self.add(descriptor.rawValue, to: epoll, interest: interest, data: registration.eventData)
    }

    /// Stops watching a descriptor. Call it before the descriptor is closed, always.
    package func unwatch(_ descriptor: some LoopDescriptor) {
        _ = epoll_ctl(epoll.rawValue, EPOLL_CTL_DEL, descriptor.rawValue, nil)
    }

    private static func add(
        _ descriptor: CInt, to epoll: OwnedDescriptor, interest: UInt32, data: UInt64
    ) throws(SystemError) {
        var event = epoll_event(events: interest, data: epoll_data_t(u64: data))
        guard epoll_ctl(epoll.rawValue, EPOLL_CTL_ADD, descriptor, &event) == 0 else { throw SystemError("epoll_ctl") }
    }

    /// False once a registration has ended.
    package func isRegistered(_ registration: LoopRegistration) -> Bool {
        state.withLock { $0.table.handler(of: registration) != nil }
    }

    /// How many registrations there are.
    package var registrationCount: Int {
        state.withLock { $0.table.registrationCount }
    }

    /// How many deadlines the loop keeps, replaced ones among them.
    package var deadlineCount: Int {
        state.withLock { $0.table.deadlineCount }
    }

    // MARK: - Turns and deadlines

    /// Asks for a turn on the loop; any number of calls before it comes count as one.
    package func resume(_ registration: LoopRegistration) {
        let mustWake = state.withLock { state in
            guard state.table.resume(registration), !state.isWoken else { return false }
            // The runner looks at the list before it leaves, so only others need the eventfd.
            if let runner = state.runner, pthread_equal(runner, pthread_self()) != 0 { return false }
            state.isWoken = true
            return true
        }
        if mustWake { eventfd_write(wake.rawValue, 1) }
    }

    /// Asks for an event at `deadline`, in place of the one asked for before; nil: none.
    package func setDeadline(_ deadline: Deadline?, of registration: LoopRegistration) {
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

    // MARK: - Running

    private func run() {
        state.withLock { $0.runner = pthread_self() }
        setPatience(Self.patienceNanoseconds)
        var mustPoll = true
        while true {
            let count = epoll_wait(epoll.rawValue, events.baseAddress, CInt(Self.batchSize), mustPoll || isOutOfPatience ? 0 : -1)
            if count < 0 {
                if errno == EINTR { continue }
                // Someone has closed the descriptor: not to ask again and again.
                isOutOfPatience = true
            }
            mustPoll = serve(eventCount: Int(max(count, 0)))
            if count <= 0, !mustPoll, isOutOfPatience, leave() { return }
        }
    }

    /// Has `patience` ring each time that so many nanoseconds are over; zero: no more.
    private func setPatience(_ nanoseconds: Int) {
        isOutOfPatience = false
        hasServed = false
        let period = timespec(tv_sec: 0, tv_nsec: nanoseconds)
        var specification = itimerspec(it_interval: period, it_value: period)
        timerfd_settime(patience.rawValue, 0, &specification, nil)
    }

    /// Serves one batch; true when handlers wait for another turn.
    private func serve(eventCount: Int) -> Bool {
        state.withLock { state in
            // Turns that were asked for come before what the kernel says now: they are older.
            state.table.takeResumed(into: &ready)
            for event in events.prefix(eventCount) { collect(event, &state) }
        }
        // A full batch, and as many that asked for a turn: not to be allocated again each time.
        while let next = ready.popFirst(keepingCapacity: 2 * Self.batchSize) { next.handler.handle(next.events) }
        if !departures.isEmpty { depart() }
        return state.withLock { $0.table.hasResumed }
    }

    private func collect(_ event: epoll_event, _ state: inout State) {
        switch event.data.u64 {
        case Self.wakeData:
            var count: eventfd_t = 0
            eventfd_read(wake.rawValue, &count)
            state.isWoken = false
        case Self.timerData:
            var expirations: UInt64 = 0
            _ = read(timer.rawValue, &expirations, MemoryLayout<UInt64>.size)
            state.armed = nil
            state.table.takeExpired(at: .now, into: &ready)
            armTimer(&state)
        case Self.patienceData:
            var rings: UInt64 = 0
            _ = read(patience.rawValue, &rings, MemoryLayout<UInt64>.size)
            isOutOfPatience = !hasServed
            hasServed = false
        case let data:
            hasServed = true
            isOutOfPatience = false
            guard let handler = state.table.handler(of: LoopRegistration(eventData: data)) else { return }
            ready.append(LoopTable.Ready(handler: handler, events: LoopEvents(epoll: event.events)))
        }
    }

    /// On the loop, in a handler: has `work` run on `queue` once the events of this batch have been handled,
    /// in one block with whatever else is for that queue.
    package func afterBatch(_ work: any BatchedWork, on queue: DispatchQueue) {
        if let place = departures.lastIndex(where: { $0.queue === queue }) {
            departures[place].work.append(work)
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
        // Where queue and loop share a processor, the queue goes first. Else each answer that it sends would
        // wake the loop, which takes the processor away from it for one event: half of what an echo cost.
        if count >= Self.yieldThreshold { sched_yield() }
    }

    /// Gives the thread back, unless someone asked for a turn meanwhile.
    private func leave() -> Bool {
        let leaves = state.withLock { state in
            guard !state.table.hasResumed else { return false }
            state.runner = nil
            return true
        }
        if leaves { setPatience(0) }
        return leaves
    }
}

/// One call on the loop.
private final class Errand: EventHandler {
    private let body: @Sendable () -> Void
    private let place = Locked<LoopRegistration?>(nil)
    private unowned let loop: EventLoop

    init(_ body: @escaping @Sendable () -> Void, on loop: EventLoop) {
        self.body = body
        self.loop = loop
    }

    func begin() {
        let registration = loop.register(self)
        place.withLock { $0 = registration }
        loop.resume(registration)
    }

    func handle(_ events: LoopEvents) {
        if let registration = place.withLock({ $0.take() }) { loop.deregister(registration) }
        body()
    }
}

extension EventLoop {
    /// Has `body` called on the loop, once.
    package func run(_ body: @escaping @Sendable () -> Void) {
        Errand(body, on: self).begin()
    }
}

// MARK: - The loops of the process

extension EventLoop {
    private static let shared: Locked<(loops: [EventLoop], next: Int)> = Locked(([], 0))

    /// One of the process's loops, in turn: one for each processor it may use, made when first needed.
    ///
    /// A socket stays on its loop.
    package static func next() throws(SystemError) -> EventLoop {
        try shared.withLock { shared throws(SystemError) in
            if shared.loops.isEmpty { shared.loops = try makeAll() }
            shared.next = (shared.next + 1) % shared.loops.count
            return shared.loops[shared.next]
        }
    }

    /// All or none: when descriptors run out halfway, the next call begins anew.
    private static func makeAll() throws(SystemError) -> [EventLoop] {
        var loops: [EventLoop] = []
        for number in 0..<Int(CLinux_usable_processors()) {
            loops.append(try EventLoop(label: "AsyncSockets.EventLoop.\(number)"))
        }
        return loops
    }
}

/// A descriptor of the loop's own, closed with its last reference.
private final class OwnedDescriptor: Sendable {
    let rawValue: CInt

    init(_ call: String, _ rawValue: CInt) throws(SystemError) {
        guard rawValue >= 0 else { throw SystemError(call) }
        self.rawValue = rawValue
    }

    deinit { close(rawValue) }
}

internal import CSimulation
internal import Glibc

/// An object behind a descriptor.
class KernelObject {
    fileprivate(set) var descriptor: Int32 = -1
    /// Identifies the object in the trace.
    fileprivate(set) var serial = 0
    /// The set that watches the object.
    fileprivate(set) weak var watcher: EventSet?

    /// The events that `epoll_wait` would report now.
    var readiness: UInt32 { 0 }

    /// The address of a socket.
    var ownPlace: Place? { nil }

    func close() {}

    /// Reports an edge: something has changed that a watcher may want to know.
    func announce() { watcher?.note(self) }
}

/// Descriptors, time and libdispatch for the threads of a run.
///
/// The event loops of the process exist longer than a run, and so do their descriptors.
final class Kernel: @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    static let shared = Kernel()

    private var objects: [Int32: KernelObject] = [:]
    private var lastSerial = 0
    private static let day: UInt64 = 86_400_000_000_000
    /// Nanoseconds.
    private(set) var now: UInt64 = 1_000_000_000
    let dispatch = SimulatedDispatch()
    private(set) var network = Network()
    /// Those of the current run.
    private(set) var scheduler: Scheduler?
    private var currentFaults = Faults()
    /// Whether no call fails.
    var hasNoFaults = false
    var faults: Faults { hasNoFaults ? Faults() : currentFaults }
    /// The numbers that were closed in this run. They are not used again.
    private var closed: Set<Int32> = []

    /// Called when a connection has been accepted.
    var onAccept: (StreamEnd) -> Void = { _ in }

    /// What this kernel does wrong, in tests of the simulation itself.
    var defect: Defect?

    enum Defect: String {
        case losesBytes, doublesBytes, losesEdges, isLate
    }

    /// How often calls fail, once in the given number of times. Zero means never.
    struct Faults {
        var interrupts = 0
        var refusals = 0
        var shortages = 0
        var shortCounts = 0
        var lateEvents = 0
        /// Of accept4(2), of socket(2), of connect(2), and of a connection that is being established.
        var accepts = 0
        var sockets = 0
        var connects = 0
        var handshakes = 0
        /// Of datagrams in transit.
        var losses = 0
        var doubles = 0
        /// Of the segmentation of a message.
        var segments = 0
        /// By an attacker.
        var replays = 0
        var forgeries = 0
    }

    func begin(_ scheduler: Scheduler, _ faults: Faults) {
        (self.scheduler, currentFaults) = (scheduler, faults)
        (network, closed) = (Network(), [])
        // Each run starts at a round time, which is later than the time of earlier runs.
        now = (now / Self.day + 1) * Self.day
        scheduler.actionCount = { [self] in network.deliverableCount(at: now) }
        scheduler.act = { [self] index in change { $0.deliver(index, self) } }
        scheduler.advance = { [self] in advance() }
    }

    // MARK: - Descriptors

    func open(_ object: KernelObject, as descriptor: Int32 = CSim_reserve_descriptor()) -> Int32 {
        lastSerial += 1
        (object.descriptor, object.serial) = (descriptor, lastSerial)
        objects[descriptor] = object
        CSim_set_descriptor(descriptor, true)
        return descriptor
    }

    func find<Kind: KernelObject>(_ descriptor: Int32, _ kind: Kind.Type = Kind.self) -> Kind? {
        objects[descriptor] as? Kind
    }

    func close(_ descriptor: Int32) {
        guard let object = objects.removeValue(forKey: descriptor) else { return }
        if object.watcher != nil { scheduler?.fail("descriptor \(object.serial) is closed while it is watched") }
        object.close()
        closed.insert(descriptor)
        CSim_set_descriptor(descriptor, false)
    }

    func hasClosed(_ descriptor: Int32) -> Bool { closed.contains(descriptor) }

    /// The open descriptors of connections.
    var openStreams: [StreamEnd] { objects.values.compactMap { $0 as? StreamEnd }.sorted { $0.serial < $1.serial } }

    /// The number of open sockets.
    var socketCount: Int { objects.values.count { !($0 is Timer || $0 is Counter || $0 is EventSet) } }

    func connect(_ link: Network.Link) -> (StreamEnd, StreamEnd) { change { $0.connect(link, self) } }

    /// The objects of the network may look at it meanwhile.
    func change<Result>(_ body: (inout Network) -> Result) -> Result {
        var changed = network
        defer { network = changed }
        return body(&changed)
    }

    func watch(_ object: KernelObject, by set: EventSet?) { object.watcher = set }

    // MARK: - Faults and points

    func happens(_ rate: Int, _ object: KernelObject) -> Bool {
        guard rate > 0, let scheduler else { return false }
        return scheduler.choices.chance(rate, Self.stream(of: object))
    }

    func pick(_ count: Int, _ object: KernelObject) -> Int {
        scheduler?.choices.pick(count, Self.stream(of: object)) ?? 0
    }

    private static func stream(of object: KernelObject) -> UInt16 {
        guard let end = object as? StreamEnd else { return Choices.Stream.events }
        return Choices.Stream.descriptors + UInt16(end.number % 8)
    }

    func point() { scheduler?.point() }

    /// Runs code of the library, whose system calls the simulation serves.
    func serving<Result>(_ body: () -> Result) -> Result {
        let wasSimulated = CSim_is_simulated()
        CSim_set_simulated(true)
        defer { CSim_set_simulated(wasSimulated) }
        return body()
    }

    func trace(_ event: StaticString, _ object: KernelObject, _ first: Int = 0, _ second: Int = 0) {
        scheduler?.trace.add(event, object.serial, first, second)
    }

    // MARK: - Time

    /// Nanoseconds since the beginning of the run.
    var timeOfRun: UInt64 { now % Self.day }

    /// Each look at the clock takes a little time, so that code with a time budget terminates.
    func look() -> UInt64 {
        now += 50
        return now
    }

    /// Calls `body` on a worker after that time.
    func after(_ nanoseconds: UInt64, _ body: @escaping () -> Void) {
        dispatch.add(.closure(body), to: nil, at: now + nanoseconds)
    }

    private func advance() -> Bool {
        let timers = objects.values.compactMap { $0 as? Timer }.filter { $0.expiry != nil }
        let times = timers.compactMap(\.expiry) + [dispatch.nextDue, network.nextArrival].compactMap(\.self)
        guard let next = times.min() else { return false }
        now = max(now, next)
        scheduler?.trace.add("time", Int(now))
        for timer in timers.sorted(by: { $0.serial < $1.serial }) { timer.expire(at: now) }
        dispatch.release(at: now)
        return true
    }
}

/// A timerfd(2) descriptor.
final class Timer: KernelObject {
    private(set) var expiry: UInt64?
    private var interval: UInt64 = 0
    private var count: UInt64 = 0

    override var readiness: UInt32 { count > 0 ? EPOLLIN.rawValue : 0 }

    /// Zero disarms the timer.
    func set(_ expiry: UInt64, _ interval: UInt64) {
        self.expiry = expiry == 0 ? nil : expiry
        (self.interval, count) = (interval, 0)
    }

    func expire(at now: UInt64) {
        guard let due = expiry, due <= now else { return }
        count += 1
        expiry = interval > 0 ? now + interval : nil
        announce()
    }

    func take() -> UInt64? {
        guard count > 0 else { return nil }
        defer { count = 0 }
        return count
    }
}

/// An eventfd(2) descriptor.
final class Counter: KernelObject {
    private var count: UInt64 = 0

    override var readiness: UInt32 { EPOLLOUT.rawValue | (count > 0 ? EPOLLIN.rawValue : 0) }

    func add() {
        count += 1
        announce()
    }

    func take() -> UInt64? {
        guard count > 0 else { return nil }
        defer { count = 0 }
        return count
    }
}

/// An epoll(7) set. All its members are edge-triggered.
final class EventSet: KernelObject {
    private struct Interest {
        let object: KernelObject
        let events: UInt32
        let data: UInt64
    }

    private var interests: [Int32: Interest] = [:]
    /// The descriptors with edges that have not been reported, in order.
    private var pending: [Int32] = []

    /// Whether `epoll_wait` would return.
    var hasEvents: Bool { pending.contains { interests[$0].map { events(of: $0) != 0 } ?? false } }

    func add(_ object: KernelObject, _ events: UInt32, _ data: UInt64) {
        interests[object.descriptor] = Interest(object: object, events: events, data: data)
        if object.readiness & events != 0 { note(object) }
    }

    func remove(_ descriptor: Int32) -> Bool {
        pending.removeAll { $0 == descriptor }
        return interests.removeValue(forKey: descriptor) != nil
    }

    func note(_ object: KernelObject) {
        guard interests[object.descriptor] != nil, !pending.contains(object.descriptor) else { return }
        pending.append(object.descriptor)
    }

    private func events(of interest: Interest) -> UInt32 {
        interest.object.readiness & (interest.events & ~EPOLLET.rawValue | EPOLLERR.rawValue | EPOLLHUP.rawValue)
    }

    /// Returns the pending events in any order. Some of them may be reported by the next call instead.
    func take(_ limit: Int, _ kernel: Kernel) -> [epoll_event] {
        var taken: [epoll_event] = []
        var late: [Int32] = []
        while taken.count < limit, !pending.isEmpty {
            let descriptor = pending.remove(at: kernel.pick(pending.count, self))
            guard let interest = interests[descriptor] else { continue }
            let events = events(of: interest)
            if events == 0 { continue }
            if !taken.isEmpty, kernel.happens(kernel.faults.lateEvents, self) {
                late.append(descriptor)
                continue
            }
            kernel.trace("event", interest.object, Int(events))
            taken.append(epoll_event(events: events, data: epoll_data_t(u64: interest.data)))
        }
        pending.append(contentsOf: late)
        return taken
    }
}

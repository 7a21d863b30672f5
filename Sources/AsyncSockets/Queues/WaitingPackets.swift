internal import SocketBuffers
internal import SocketCore

/// A read or write that waits in a queue.
protocol WaitingPacket {
    /// The result of the operation.
    associatedtype Value: Sendable

    /// The seconds that it may take once it is the oldest.
    var timeout: Double { get }
    /// Answered when it ends.
    var completion: Completion<Value> { get }
}

/// The reads or writes of a connection that have not been served yet, oldest first, with the marker that
/// `startTLS` leaves among them (`GCDAsyncSpecialPacket`), and two clocks: of the oldest packet, and of the
/// waiters. A connection is upgraded once, so there is one marker at most.
///
/// Generic, and therefore used inside this module only, where it is made for each kind of packet: `ReadHalf`
/// and `WriteHalf` are what others see.
struct WaitingPackets<Packet: WaitingPacket>: ~Copyable {
    private var packets = Ring<Packet>()
    /// How many packets are before the marker; without a marker, more than there can be.
    private var countBeforeMarker = UInt32.max
    /// Of the packet at the front.
    private var timer = OperationTimer()
    /// No waiter's time ends before this.
    private var waiterDeadline = Deadline.never

    var isEmpty: Bool { packets.isEmpty && countBeforeMarker == .max }
    var count: Int { packets.count }

    @inline(__always)
    mutating func append(_ packet: consuming Packet) {
        if let deadline = packet.completion.deadline { waiterDeadline = min(waiterDeadline, deadline) }
        packets.append(consume packet)
    }

    // MARK: - The marker

    var hasStartTLS: Bool { countBeforeMarker != .max }

    /// True when everything before the marker has been served.
    var isAtStartTLS: Bool { countBeforeMarker == 0 }

    mutating func appendStartTLS() {
        countBeforeMarker = UInt32(truncatingIfNeeded: packets.count)
    }

    mutating func removeStartTLS() {
        if isAtStartTLS { countBeforeMarker = .max }
    }

    // MARK: - The front

    /// The packet that is `offset` places behind the front; nil at the marker or past the end. Valid until
    /// the queue changes.
    func packet(at offset: Int) -> UnsafeMutablePointer<Packet>? {
        offset < Int(countBeforeMarker) ? packets[offset] : nil
    }

    /// The packet at the front; nil at the marker or when the queue is empty. Valid until the queue changes.
    var front: UnsafeMutablePointer<Packet>? { packet(at: 0) }

    /// Takes out the packet at the front; nil at the marker or when the queue is empty.
    @inline(__always)
    mutating func takeFront() -> Packet? {
        guard countBeforeMarker > 0, let packet = packets.popFirst() else { return nil }
        timer.advance()
        if countBeforeMarker != .max { countBeforeMarker -= 1 }
        return packet
    }

    @inline(__always)
    mutating func removeFront() {
        guard countBeforeMarker > 0 else { return }
        timer.advance()
        // Released last: a caller's deallocator may run then.
        let packet = packets.popFirst()
        defer { withExtendedLifetime(packet) {} }
        if packet != nil, countBeforeMarker != .max { countBeforeMarker -= 1 }
    }

    // MARK: - Anywhere in the queue

    /// The position of a packet, on either side of the marker.
    func firstIndex(where isWanted: (UnsafeMutablePointer<Packet>) -> Bool) -> Int? {
        (0..<packets.count).first { packets[$0].map(isWanted) ?? false }
    }

    /// All packets, on both sides of the marker.
    func forEach(_ body: (UnsafeMutablePointer<Packet>) -> Void) {
        for index in 0..<packets.count {
            if let packet = packets[index] { body(packet) }
        }
    }

    /// The packet at a position, on either side of the marker. Valid until the queue changes.
    func anyPacket(at index: Int) -> UnsafeMutablePointer<Packet>? { packets[index] }

    /// The packet of `waiter`, and its position, on either side of the marker. Valid until the queue changes.
    func find(_ waiter: AnyObject) -> (index: Int, packet: UnsafeMutablePointer<Packet>)? {
        guard let index = firstIndex(where: { $0.pointee.completion.answers(waiter) }), let packet = packets[index] else {
            return nil
        }
        return (index, packet)
    }

    mutating func remove(at index: Int) {
        if index == 0 { timer.advance() }
        let packet = packets.remove(at: index)
        defer { withExtendedLifetime(packet) {} }
        if packet != nil, index < Int(countBeforeMarker), countBeforeMarker != .max { countBeforeMarker -= 1 }
    }

    /// Takes the oldest packet out, even from behind the marker; nil when the queue is empty, which is then
    /// as new.
    mutating func drop() -> Packet? {
        countBeforeMarker = .max
        let packet = packets.popFirst()
        if packets.isEmpty { packets.removeAll() }
        return packet
    }

    // MARK: - Time

    /// The number of the oldest packet. It grows with each that is complete.
    var number: UInt32 { timer.number }

    /// The seconds that the oldest packet may take; nil when none waits.
    private var timeout: Double? { front?.pointee.timeout }

    /// Starts the clock of the oldest packet, unless it runs.
    mutating func startClock() {
        if let timeout { timer.startIfNeeded(seconds: timeout) }
    }

    var hasDeadline: Bool { !timer.isEndless || !waiterDeadline.isNever }

    /// When the oldest packet has taken too long, or a waiter's time may end.
    var deadline: Deadline? {
        waiterDeadline.isNever ? timer.deadline : .earlier(timer.deadline, waiterDeadline)
    }

    /// A waiter whose time has come; nil when none is left.
    mutating func lateWaiter(at now: Deadline) -> (any OperationWaiter<Packet.Value>)? {
        guard waiterDeadline <= now else { return nil }
        var earliest = Deadline.never
        var late: (any OperationWaiter<Packet.Value>)?
        forEach { packet in
            if late == nil { late = packet.pointee.completion.lateWaiter(at: now) }
            if let deadline = packet.pointee.completion.deadline { earliest = min(earliest, deadline) }
        }
        waiterDeadline = earliest
        return late
    }

    /// The oldest packet, when it has taken too long, once.
    ///
    /// - Parameter progress: How far that packet is.
    mutating func takeLate(at now: Deadline, _ progress: OperationProgress?) -> LateOperation? {
        timer.deadline == nil ? nil : timer.takeLate(at: now, progress)
    }

    /// Lets a late packet go on for `seconds` more; returns the time it had when it is to end now. Nil, and
    /// nothing changes, when it is no longer the oldest.
    mutating func extend(_ number: UInt32, by seconds: Double) -> Double? {
        timer.extend(number, by: seconds, timeout)
    }
}

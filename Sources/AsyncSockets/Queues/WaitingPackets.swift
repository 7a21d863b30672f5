internal import SocketBuffers
internal import SocketCore

protocol WaitingPacket {
    associatedtype Value: Sendable

    /// The time limit in seconds, measured from when the operation becomes the oldest in its queue.
    var timeout: Double { get }
    var completion: Completion<Value> { get }
}

/// The pending reads or writes of a connection, oldest first. The queue also holds the marker added by
/// `startTLS` (`GCDAsyncSpecialPacket`) and two timers: for the oldest packet, and for the waiters. A
/// connection is upgraded only once, so there is at most one marker.
///
/// Generic, and therefore used only inside this module, where it is specialized for each kind of packet:
/// `ReadHalf`, `WriteHalf` and `DatagramSendQueue` each have one. `DataPath` and `HandshakeDriver` use the
/// packets of both halves directly, for timeouts, markers and closing.
struct WaitingPackets<Packet: WaitingPacket>: ~Copyable {
    private var packets = Ring<Packet>()
    /// The number of packets before the marker, or the maximum value if no marker is set.
    private var countBeforeMarker = UInt32.max
    private var timer = OperationTimer()
    /// No waiter's deadline is earlier than this.
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

    /// Whether all packets before the marker have been served.
    var isAtStartTLS: Bool { countBeforeMarker == 0 }

    mutating func appendStartTLS() {
        countBeforeMarker = UInt32(truncatingIfNeeded: packets.count)
    }

    mutating func removeStartTLS() {
        if isAtStartTLS { countBeforeMarker = .max }
    }

    // MARK: - The front

    /// Returns the packet `offset` places after the front, or `nil` at the marker or past the end. Valid
    /// until the queue changes.
    func packet(at offset: Int) -> UnsafeMutablePointer<Packet>? {
        offset < Int(countBeforeMarker) ? packets[offset] : nil
    }

    /// The packet at the front, or `nil` at the marker or if the queue is empty. Valid until the queue
    /// changes.
    var front: UnsafeMutablePointer<Packet>? { packet(at: 0) }

    /// Removes and returns the packet at the front. Returns `nil` at the marker or if the queue is empty.
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
        // Released last, because this may run a user's deallocator.
        let packet = packets.popFirst()
        defer { withExtendedLifetime(packet) {} }
        if packet != nil, countBeforeMarker != .max { countBeforeMarker -= 1 }
    }

    // MARK: - Anywhere in the queue

    /// Returns the position of a packet, on either side of the marker.
    func firstIndex(where isWanted: (UnsafeMutablePointer<Packet>) -> Bool) -> Int? {
        (0..<packets.count).first { packets[$0].map(isWanted) ?? false }
    }

    /// Calls `body` for all packets on both sides of the marker.
    func forEach(_ body: (UnsafeMutablePointer<Packet>) -> Void) {
        for index in 0..<packets.count {
            if let packet = packets[index] { body(packet) }
        }
    }

    /// Returns the packet at a position, on either side of the marker. Valid until the queue changes.
    func anyPacket(at index: Int) -> UnsafeMutablePointer<Packet>? { packets[index] }

    /// Finds `waiter`'s packet, on either side of the marker. Valid until the queue changes.
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

    /// Removes the marker, and removes and returns the oldest packet, even if it is after the marker. Returns
    /// `nil` if the queue is empty.
    mutating func drop() -> Packet? {
        countBeforeMarker = .max
        let packet = packets.popFirst()
        if packets.isEmpty { packets.removeAll() }
        return packet
    }

    // MARK: - Time

    /// The number of the oldest packet. It increases with each packet removed from the front.
    var number: UInt32 { timer.number }

    private var timeout: Double? { front?.pointee.timeout }

    mutating func startClock() {
        if let timeout { timer.startIfNeeded(seconds: timeout) }
    }

    /// Whether the timeout of the oldest packet has started, even if it is unlimited.
    var hasStartedClock: Bool { timer.isStarted }

    var hasDeadline: Bool { !timer.isEndless || !waiterDeadline.isNever }

    /// The earlier of the oldest packet's deadline and the first waiter's deadline.
    var deadline: Deadline? {
        waiterDeadline.isNever ? timer.deadline : .earlier(timer.deadline, waiterDeadline)
    }

    /// Returns a waiter with an expired deadline, or `nil` if none has expired.
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

    /// Returns the oldest packet if its deadline has passed, but only once.
    ///
    /// - Parameter progress: The progress of that packet.
    mutating func takeLate(at now: Deadline, _ progress: OperationProgress?) -> LateOperation? {
        timer.deadline == nil ? nil : timer.takeLate(at: now, progress)
    }

    /// Extends a late packet by `seconds`. Returns its original timeout if it must fail now. Returns `nil`,
    /// without changing anything, if it is no longer the oldest packet.
    mutating func extend(_ number: UInt32, by seconds: Double) -> Double? {
        timer.extend(number, by: seconds, timeout)
    }
}

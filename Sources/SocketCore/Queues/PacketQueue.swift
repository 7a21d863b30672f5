internal import SocketBuffers

/// The reads or writes of a connection that have not been served yet, oldest first, with the marker that
/// `startTLS` leaves among them (`GCDAsyncSpecialPacket`). A connection is upgraded once, so there is one
/// marker at most.
///
/// Generic, and therefore used inside this module only, where it is made for each kind of packet: `ReadHalf`
/// and `WriteHalf` are what others see.
struct PacketQueue<Packet>: ~Copyable {
    private var packets = Ring<Packet>()
    /// How many packets are before the marker; without a marker, more than there can be.
    private var countBeforeMarker = UInt32.max

    var isEmpty: Bool { packets.isEmpty && countBeforeMarker == .max }

    var hasStartTLS: Bool { countBeforeMarker != .max }

    /// True when everything before the marker has been served.
    var isAtStartTLS: Bool { countBeforeMarker == 0 }

    mutating func append(_ packet: consuming Packet) {
        packets.append(consume packet)
    }

    mutating func appendStartTLS() {
        countBeforeMarker = UInt32(truncatingIfNeeded: packets.count)
    }

    mutating func removeStartTLS() {
        if isAtStartTLS { countBeforeMarker = .max }
    }

    /// The packet that is `offset` places behind the front; nil at the marker or past the end. Valid until
    /// the queue changes.
    func packet(at offset: Int) -> UnsafeMutablePointer<Packet>? {
        offset < Int(countBeforeMarker) ? packets[offset] : nil
    }

    /// The packet at the front; nil at the marker or when the queue is empty. Valid until the queue changes.
    var front: UnsafeMutablePointer<Packet>? { packet(at: 0) }

    mutating func removeFront() {
        guard countBeforeMarker > 0 else { return }
        // Released last: a caller's deallocator may run then.
        let packet = packets.popFirst()
        defer { withExtendedLifetime(packet) {} }
        if packet != nil, countBeforeMarker != .max { countBeforeMarker -= 1 }
    }

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

    mutating func remove(at index: Int) {
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
}

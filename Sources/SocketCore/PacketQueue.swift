/// The reads or writes of a connection that have not been served yet, oldest first, with the marker that `startTLS` leaves among them
/// (`GCDAsyncSpecialPacket`). A connection is upgraded once, so there is one marker at most.
///
/// A ring. A packet is looked at and changed where it is: it has a hundred bytes and references among them, and each copy would be counted.
/// Generic, and therefore used inside this module only, where it is made for each kind of packet: `ReadQueue` and `WriteQueue` are what others see.
struct PacketQueue<Packet>: ~Copyable {
    private var ring: UnsafeMutablePointer<Packet>?
    /// Zero, or a power of two.
    private var capacity = 0
    private var head = 0
    private var count = 0
    /// How many packets stand before the marker; more than there can be when there is none.
    private var countBeforeMarker = Int.max

    /// An emptied queue that has grown beyond this many places gives its memory back.
    private static var keptCapacity: Int { 64 }

    deinit {
        for offset in 0..<count { place(offset).deinitialize(count: 1) }
        ring?.deallocate()
    }

    var isEmpty: Bool { count == 0 && countBeforeMarker == .max }

    /// True when everything before the marker has been served.
    var isAtStartTLS: Bool { countBeforeMarker == 0 }

    mutating func append(_ packet: consuming Packet) {
        if count == capacity { grow() }
        place(count).initialize(to: packet)
        count += 1
    }

    mutating func appendStartTLS() {
        countBeforeMarker = count
    }

    mutating func removeStartTLS() {
        if isAtStartTLS { countBeforeMarker = .max }
    }

    /// The packet that is `offset` places behind the front; nil at the marker or past the end. Valid until the queue changes.
    func packet(at offset: Int) -> UnsafeMutablePointer<Packet>? {
        offset < count && offset < countBeforeMarker ? place(offset) : nil
    }

    /// The packet at the front; nil at the marker or when there is none. Valid until the queue changes.
    var front: UnsafeMutablePointer<Packet>? { packet(at: 0) }

    mutating func removeFront() {
        guard let front else { return }
        // Released last: a caller's deallocator may run then.
        let packet = front.move()
        defer { withExtendedLifetime(packet) {} }
        head = (head + 1) & (capacity - 1)
        count -= 1
        if countBeforeMarker != .max { countBeforeMarker -= 1 }
        if count == 0, capacity > Self.keptCapacity { dropRing() }
    }

    mutating func removeAll() {
        for offset in 0..<count { place(offset).deinitialize(count: 1) }
        count = 0
        countBeforeMarker = .max
        dropRing()
    }

    private func place(_ offset: Int) -> UnsafeMutablePointer<Packet> {
        // Asked for only where there is a packet or room for one.
        ring.unsafelyUnwrapped + ((head + offset) & (capacity - 1))
    }

    private mutating func grow() {
        let larger = UnsafeMutablePointer<Packet>.allocate(capacity: max(capacity * 2, 1))
        for offset in 0..<count { (larger + offset).moveInitialize(from: place(offset), count: 1) }
        ring?.deallocate()
        ring = larger
        capacity = max(capacity * 2, 1)
        head = 0
    }

    private mutating func dropRing() {
        ring?.deallocate()
        ring = nil
        capacity = 0
        head = 0
    }
}

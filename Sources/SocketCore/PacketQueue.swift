/// The reads or writes of a connection that have not been served yet, oldest first, with the marker that `startTLS` leaves among them
/// (`GCDAsyncSpecialPacket`). A connection is upgraded once, so there is one marker at most.
///
/// Generic, and therefore used inside this module only, where it is made for each kind of packet: `ReadQueue` and `WriteQueue` are what others see.
struct PacketQueue<Packet> {
    // Served packets leave nil at the front until enough have gathered to be worth moving the rest.
    private var packets: [Packet?] = []
    private var head = 0
    /// The place of the packet that the marker stands before.
    private var marker: Int?

    var isEmpty: Bool { head == packets.count && marker == nil }

    /// True when everything before the marker has been served.
    var isAtStartTLS: Bool { marker == head }

    mutating func append(_ packet: Packet) {
        packets.append(packet)
    }

    mutating func appendStartTLS() {
        marker = packets.count
    }

    mutating func removeStartTLS() {
        if isAtStartTLS { marker = nil }
    }

    /// True when there is a packet `offset` places behind the front, and no marker before it.
    @inline(__always)
    func hasPacket(at offset: Int) -> Bool {
        let place = head + offset
        return place < packets.count && place < marker ?? .max
    }

    /// The packet that is `offset` places behind the front; nil at the marker or past the end. It is changed where it is: not even its bytes are copied.
    subscript(offset: Int) -> Packet? {
        @inline(__always)
        _read {
            if hasPacket(at: offset) { yield packets[head + offset] } else { yield nil }
        }
        @inline(__always)
        _modify {
            if hasPacket(at: offset) {
                yield &packets[head + offset]
            } else {
                var nothing: Packet?
                yield &nothing
            }
        }
    }

    mutating func removeFront() {
        guard hasPacket(at: 0) else { return }
        packets[head] = nil
        head += 1
        if head == packets.count {
            packets.removeAll(keepingCapacity: head <= 64)
            moveOrigin()
        } else if head >= 64, head * 2 >= packets.count {
            packets.removeFirst(head)
            moveOrigin()
        }
    }

    private mutating func moveOrigin() {
        if let place = marker { marker = place - head }
        head = 0
    }

    mutating func removeAll() {
        packets.removeAll()
        head = 0
        marker = nil
    }
}

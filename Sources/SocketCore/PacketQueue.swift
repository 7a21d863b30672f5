/// The reads or writes of a connection that have not been served yet, oldest first, with the markers of `startTLS` among them.
package struct PacketQueue<Packet> {
    /// A packet, or the mark that `startTLS` leaves in both queues (`GCDAsyncSpecialPacket`).
    package enum Entry {
        case packet(Packet)
        case startTLS
    }

    // Served entries leave nil at the front until enough have gathered to be worth moving the rest.
    private var entries: [Entry?] = []
    private var head = 0

    package init() {}

    package var isEmpty: Bool { head == entries.count }
    package var count: Int { entries.count - head }

    package var front: Entry? {
        isEmpty ? nil : entries[head]
    }

    package mutating func append(_ packet: Packet) {
        entries.append(.packet(packet))
    }

    package mutating func appendStartTLS() {
        entries.append(.startTLS)
    }

    @discardableResult
    package mutating func removeFront() -> Entry? {
        guard !isEmpty else { return nil }
        let entry = entries[head]
        entries[head] = nil
        head += 1
        if head == entries.count {
            entries.removeAll(keepingCapacity: head <= 64)
            head = 0
        } else if head >= 64, head * 2 >= entries.count {
            entries.removeFirst(head)
            head = 0
        }
        return entry
    }

    /// Changes the packet that is `offset` entries behind the front in place. Does nothing at a marker or past the end.
    @discardableResult
    package mutating func withPacket<Result>(at offset: Int, _ body: (inout Packet) -> Result) -> Result? {
        guard head + offset < entries.count, case .packet(var packet) = entries[head + offset] else { return nil }
        // The slot lets go of the packet while it changes, so that its bytes are not copied.
        entries[head + offset] = nil
        defer { entries[head + offset] = .packet(packet) }
        return body(&packet)
    }

    /// The packet that is `offset` entries behind the front; nil at a marker or past the end.
    package func packet(at offset: Int) -> Packet? {
        guard head + offset < entries.count, case .packet(let packet) = entries[head + offset] else { return nil }
        return packet
    }

    package mutating func removeAll() {
        entries.removeAll()
        head = 0
    }
}

internal import FoundationEssentials
package import SocketBuffers

/// The queued writes of a connection. A packet passes two marks: its last byte is *handed on* (to the kernel, or to the TLS engine),
/// and then it is *complete* (nothing of it waits in this process any more).
package struct WriteQueue {
    private var packets = PacketQueue<WritePacket>()
    /// How many packets at the front are handed on whole and not yet complete.
    private var handedOnCount = 0
    /// The bytes of all packets that are not handed on.
    package private(set) var waitingByteCount = 0

    package init() {}

    package var isEmpty: Bool { packets.isEmpty }
    package var count: Int { packets.count }

    /// The packet that a write timeout applies to: the oldest that is not complete.
    package var current: WritePacket? { packets.packet(at: 0) }

    /// True when everything before the marker of `startTLS` is complete.
    package var isAtStartTLS: Bool {
        if case .startTLS = packets.front { true } else { false }
    }

    package mutating func append(_ packet: WritePacket) {
        packets.append(packet)
        waitingByteCount += packet.count
    }

    package mutating func appendStartTLS() {
        packets.appendStartTLS()
    }

    package mutating func removeStartTLS() {
        if isAtStartTLS { packets.removeFront() }
    }

    package mutating func removeAll() {
        packets.removeAll()
        handedOnCount = 0
        waitingByteCount = 0
    }

    /// The file that is to be handed on next, and how much of it; nil when bytes are next, or nothing.
    package var nextFile: (region: FileRegion, position: Int, remaining: Int)? {
        guard let next = packets.packet(at: handedOnCount), case .file(let region) = next.payload else { return nil }
        return (region, next.handedOn, next.remaining)
    }

    /// Gives `body` the bytes to hand on next: those of one packet, or of as many small ones together as fit into `limit` bytes up to the
    /// next marker or file; nil when there are none. Nothing is delayed: only what is queued already is put together.
    package func withNextBytes<Result>(
        limit: Int, gatheringIn scratch: PreBuffer, _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result? {
        guard let first = packets.packet(at: handedOnCount) else { return nil }
        guard first.remaining < limit, packets.packet(at: handedOnCount + 1) != nil else {
            return first.withRemainingBytes(limit: limit, body)
        }
        var offset = handedOnCount
        while scratch.count < limit, let next = packets.packet(at: offset) {
            guard next.withRemainingBytes(limit: limit - scratch.count, { scratch.append($0) }) != nil else { break }
            offset += 1
        }
        defer { scratch.reset() }
        return body(scratch.readableBytes)
    }

    /// Notes that the first `count` of the bytes that `withNextBytes` gave, or of the next file, were taken.
    package mutating func handOn(_ count: Int) {
        waitingByteCount -= count
        var left = count
        while left > 0, let remaining = packets.packet(at: handedOnCount)?.remaining {
            let step = min(left, remaining)
            packets.withPacket(at: handedOnCount) { $0.handOn(step) }
            left -= step
            if step == remaining { handedOnCount += 1 }
        }
    }

    /// The bytes of the packet at the front that were handed on since the last call, and its tag; nil when there are none.
    package mutating func takeProgress() -> (count: Int, tag: Int)? {
        packets.withPacket(at: 0) { packet in packet.takeProgress().map { ($0, packet.tag) } } ?? nil
    }

    /// Removes the packets whose bytes were all handed on, oldest first.
    package mutating func removeHandedOn(_ completed: (WritePacket) -> Void) {
        while handedOnCount > 0, case .packet(let packet) = packets.removeFront() {
            handedOnCount -= 1
            completed(packet)
        }
    }
}

extension WritePacket {
    /// Nil for a file.
    fileprivate func withRemainingBytes<Result>(limit: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard case .bytes(let data) = payload else { return nil }
        return data.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0.dropFirst(handedOn).prefix(limit))) }
    }
}

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
    /// How far the oldest write has come that is not complete; nil when there is none.
    package var progress: OperationProgress? {
        guard let tag = packets[0]?.tag, let bytesDone = packets[0]?.handedOn else { return nil }
        return OperationProgress(tag: tag, bytesDone: bytesDone, total: packets[0]?.count)
    }

    /// The seconds that the oldest write may take; nil when there is none.
    package var timeout: Double? {
        packets[0]?.timeout
    }

    /// True when everything before the marker of `startTLS` is complete.
    package var isAtStartTLS: Bool { packets.isAtStartTLS }

    package mutating func append(_ packet: WritePacket) {
        packets.append(packet)
        waitingByteCount += packet.count
    }

    package mutating func appendStartTLS() {
        packets.appendStartTLS()
    }

    package mutating func removeStartTLS() {
        packets.removeStartTLS()
    }

    package mutating func removeAll() {
        packets.removeAll()
        handedOnCount = 0
        waitingByteCount = 0
    }

    /// The file that is to be handed on next, and how much of it; nil when bytes are next, or nothing.
    package var nextFile: (region: FileRegion, position: Int, remaining: Int)? {
        guard let region = packets[handedOnCount]?.file, let position = packets[handedOnCount]?.handedOn else { return nil }
        return (region, position, region.length - position)
    }

    /// Gives `body` the bytes to hand on next: those of one packet, or of as many small ones together as fit into `limit` bytes up to the
    /// next marker or file. Nothing is delayed: only what is queued already is put together.
    ///
    /// - Parameter alone: The most bytes of a packet that goes alone; nil: `limit`.
    /// - Returns: false when there are none.
    // `body` gives nothing back: a generic result would have each call look types up at run time.
    package func withNextBytes(
        limit: Int, alone: Int? = nil, gatheringIn scratch: PreBuffer, _ body: (UnsafeRawBufferPointer) -> Void
    ) -> Bool {
        guard let remaining = packets[handedOnCount]?.remaining else { return false }
        guard remaining < limit, packets.hasPacket(at: handedOnCount + 1) else {
            return packets[handedOnCount]?.withRemainingBytes(limit: alone ?? limit, body) == true
        }
        var offset = handedOnCount
        while scratch.count < limit {
            let isGathered = packets[offset]?.withRemainingBytes(limit: limit - scratch.count) { scratch.append($0) }
            guard isGathered == true else { break }
            offset += 1
        }
        guard !scratch.isEmpty else { return false }
        body(scratch.readableBytes)
        scratch.reset()
        return true
    }

    /// Notes that the first `count` of the bytes that `withNextBytes` gave, or of the next file, were taken.
    package mutating func handOn(_ count: Int) {
        waitingByteCount -= count
        var left = count
        while left > 0, let remaining = packets[handedOnCount]?.remaining {
            let step = min(left, remaining)
            packets[handedOnCount]?.handOn(step)
            left -= step
            if step == remaining { handedOnCount += 1 }
        }
    }

    /// The bytes of the packet at the front that were handed on since the last call, and its tag; nil when there are none.
    package mutating func takeProgress() -> (count: Int, tag: Int)? {
        guard let count = packets[0]?.takeProgress(), let tag = packets[0]?.tag else { return nil }
        return (count, tag)
    }

    /// Removes the oldest packet when its bytes were all handed on, and returns its tag.
    package mutating func removeHandedOn() -> Int? {
        guard handedOnCount > 0, let tag = packets[0]?.tag else { return nil }
        packets.removeFront()
        handedOnCount -= 1
        return tag
    }
}

extension WritePacket {
    /// False for a file.
    fileprivate func withRemainingBytes(limit: Int, _ body: (UnsafeRawBufferPointer) -> Void) -> Bool {
        guard case .bytes(let data) = payload else { return false }
        data.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0.dropFirst(handedOn).prefix(limit))) }
        return true
    }
}

package import FoundationEssentials
package import SocketBuffers

/// One queued write (`GCDAsyncWritePacket`): its bytes, and how many of them have been handed on.
package struct WritePacket {
    package let data: Data
    package let timeout: Double
    package let tag: Int
    /// Bytes handed to the kernel, or to the TLS engine.
    package var sent = 0

    package init(data: Data, timeout: Double, tag: Int) {
        self.data = data
        self.timeout = timeout
        self.tag = tag
    }

    package var remaining: Int { data.count - sent }
}

extension PacketQueue<WritePacket> {
    /// Gives `body` the bytes to send next: those of the first packet, or of as many small ones together as fit into `limit`
    /// bytes up to the next marker. Nothing is delayed: only what is queued already is put together.
    package func withNextBytes<Result>(limit: Int, gatheringIn scratch: PreBuffer, _ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard let first = packet(at: 0) else { return nil }
        guard first.remaining < limit, packet(at: 1) != nil else {
            return first.data.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0.dropFirst(first.sent).prefix(limit))) }
        }
        var offset = 0
        while let next = packet(at: offset), scratch.count < limit {
            let room = limit - scratch.count
            next.data.withUnsafeBytes { scratch.append(UnsafeRawBufferPointer(rebasing: $0.dropFirst(next.sent).prefix(room))) }
            offset += 1
        }
        defer { scratch.reset() }
        return body(scratch.readableBytes)
    }

    /// Notes that `count` more bytes were handed on, and removes the packets that are now complete.
    package mutating func advance(by count: Int, completed: (WritePacket) -> Void) {
        var left = count
        while left > 0, case .packet(let packet) = front {
            let step = min(left, packet.remaining)
            left -= step
            if step == packet.remaining {
                removeFront()
                completed(packet)
            } else {
                withFrontPacket { $0.sent += step }
            }
        }
    }
}

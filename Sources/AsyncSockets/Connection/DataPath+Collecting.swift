internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Coalesced writes: see the rules of `WriteCollector`.
extension DataPath {
    private static var collectionLimit: Int { 64 * 1024 }

    /// Whether `count` more bytes may be held back so that they can be combined with later writes.
    func mayCollect(_ count: Int) -> Bool {
        guard ending.intent == nil, !writes.isClosing, channel?.maySend == true else { return false }
        let limit = collectionLimit
        return count < limit && writes.waitingByteCount < limit - count
    }

    /// Whether a job of a task that writes `count` bytes is likely to write more: if received bytes are
    /// unread, or if this is a small write and not the job's first one without unread bytes.
    func expectsMoreWrites(in job: UInt32, after count: Int) -> Bool {
        guard reads.preBuffer.isEmpty else { return true }
        defer { writingJob = job }
        return writingJob == job && count < WritePacket.smallLimit
    }

    /// The collection limit, reduced if necessary so that the high-water mark is not reached and
    /// `maximumPendingWriteBytes` is not exceeded.
    private var collectionLimit: Int {
        let mark = configuration.value.writeHighWaterMark ?? Self.collectionLimit
        return min(Self.collectionLimit, mark, configuration.value.maximumPendingWriteBytes)
    }

    /// Serves reads from the buffered bytes if that may lead to more writes. Returns `false` if the
    /// collected bytes must be sent.
    @inline(__always)
    func collects(_ step: inout Step) -> Bool {
        guard writes.waitingByteCount > 0, let code = events.collectingCode else { return false }
        guard code == .block || !reads.preBuffer.isEmpty, mayCollect(0) else { return false }
        isCollecting = true
        step = serveReads()
        guard case .goesOn = step else { return true }
        if case .read = reads.front { return false }
        return code != .delivery || !events.isEmpty
    }

    /// Collects a write, which is then reported as complete.
    ///
    /// - Parameter timeout: The number of seconds in which the kernel must accept the bytes. A negative
    ///   value means no limit.
    func collect(_ bytes: UnsafeRawBufferPointer, _ more: UnsafeRawBufferPointer? = nil, timeout: Double) {
        writes.collect(bytes, more, timeout: timeout)
        (isWriting, isCollecting) = (true, true)
    }

    /// Adds a delegate's write to the joined ones. Returns `false` if the write must be queued.
    @inline(__always)
    func join(_ data: Data, timeout: Double, tag: Int) -> Bool {
        guard isCollecting, ending.intent == nil, writes.join(data, timeout: timeout, tag: tag) else { return false }
        needsPump = true
        return true
    }

    /// Combines a small write of an inline callback with the write that is already queued. If the limit would
    /// be exceeded, sends the combined writes first. Returns `false` if the write must be queued.
    func beginJoining(_ packet: borrowing WritePacket) -> Bool {
        guard isWriting, events.isInDelivery, let tag = packet.joinableTag, ending.intent == nil else { return false }
        if isCollecting, writes.waitingByteCount > Self.collectionLimit - packet.count { flush() }
        guard mayCollect(packet.count), writes.beginJoining(limit: collectionLimit) else { return false }
        // The first write is in the buffer now, so the buffer must be sent even if this write does not fit.
        (isCollecting, needsPump) = (true, true)
        return writes.join(packet.bytes, timeout: packet.timeout, tag: tag)
    }

    /// Changes the configuration. Its limits apply to later writes.
    func configure(_ configuration: SocketConfiguration.Shared) {
        self.configuration = configuration
        writes.packCollected()
        channel?.setRates(read: configuration.value.readRateLimit, write: configuration.value.writeRateLimit)
    }

    /// Called after the callbacks. Returns whether another turn is requested, and clears the request.
    @inline(__always)
    func endTurn() -> Bool {
        if holdsTickets {
            holdsTickets = false
            // Unless they were sent together with data from a callback.
            channel?.sendTickets()
        }
        if !reads.preBuffer.isEmpty, !reads.packets.isEmpty { reads.preBuffer.compact() }
        defer { wantsTurn = false }
        return wantsTurn
    }

    /// Passes everything written so far to the kernel. If that fails, the pump handles the error later.
    func flush() {
        guard needsPump || isCollecting, let channel else { return }
        // Receiving was paused while the writes were collected.
        needsPump = true
        pumpWrites(channel)
    }

    /// Passes the collected bytes to the channel, or queues them after earlier writes.
    func endCollecting(_ channel: ByteChannel) {
        isCollecting = false
        if writes.packets.isEmpty, !channel.hasUnsentBytes {
            let complete = writes.sendCollected { bytes in
                var count = 0
                // The engine encrypts a block at a time.
                while count < bytes.count, !channel.hasUnsentBytes {
                    let step = write(UnsafeRawBufferPointer(rebasing: bytes[count...]), to: channel)
                    guard step > 0 else { break }
                    count += step
                }
                return (count, count == bytes.count && !channel.hasUnsentBytes)
            }
            for write in complete { events.append(.didWrite(tag: write.tag)) }
        }
        writes.packCollected()
    }
}

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Task operations, and writes of borrowed bytes, that complete immediately and therefore need no allocation.
extension DataPath {
    /// Returns `false` if a read could be served or fail now, or could close the connection.
    func isQuiet(for goal: ReadPacket.Goal) -> Bool { isQuiet && !reads.wantsNothing(goal) }

    /// Serves a read that is not queued. Returns `nil` if the read must be queued.
    ///
    /// - Parameter isOpen: Whether more bytes may be received.
    func readAtOnce(_ packet: inout ReadPacket, isOpen: Bool) -> ReadHalf.Answer? {
        guard let channel, reads.packets.isEmpty else { return nil }
        for _ in 0..<ByteChannel.roundsPerTurn {
            if let answer = reads.serveAtOnce(&packet) {
                // The buffer has room again. Unread bytes may also have delayed the close.
                if !isCollecting, channel.mayHaveBytes || ending.mayDecide { needsPump = true }
                return answer
            }
            if isCollecting { flush() }
            guard channel.mayHaveBytes, isOpen, reads.wantsBytes, case .bytes = fill(from: channel) else { return nil }
        }
        return nil
    }

    /// Calls `body` with the next line including its line feed, and consumes it. Returns `nil` if the line
    /// has not arrived completely, if it is longer than `maxLength`, or if a read is queued.
    @inline(__always)
    func takeLine<Result>(_ maxLength: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard ending.intent == nil, let count = reads.lengthOfLine, count <= maxLength else { return nil }
        let result = body(UnsafeRawBufferPointer(rebasing: reads.preBuffer.readableBytes[..<count]))
        reads.preBuffer.consume(count)
        if !isCollecting, ending.mayDecide || mayReceive { needsPump = true }
        return result
    }

    private var mayReceive: Bool { openChannel?._withUnsafeGuaranteedRef { $0.mayHaveBytes } == true }

    /// Calls `body` with the available bytes and consumes them. Returns `false` if no bytes are available or
    /// a read is queued.
    func takeBytes(_ body: (RawSpan) -> Void) -> Bool {
        guard let channel, ending.intent == nil, reads.packets.isEmpty else { return false }
        if reads.preBuffer.isEmpty, isCollecting { flush() }
        if reads.preBuffer.isEmpty, channel.mayHaveBytes { _ = fill(from: channel) }
        guard !reads.preBuffer.isEmpty else { return false }
        defer {
            reads.preBuffer.reset()
            if channel.mayHaveBytes || ending.mayDecide { needsPump = true }
        }
        body(reads.preBuffer.readableBytes.bytes)
        return true
    }

    /// Writes as many of the bytes as possible without queuing them. Returns `nil` if all of them must be
    /// queued. Otherwise, `count` is the number of bytes that the channel accepted. If `isComplete` is
    /// `false`, some bytes were not accepted or are still buffered in the channel, and the caller must queue
    /// the rest of the write (`queueRest`).
    func writeAtOnce(_ bytes: UnsafeRawBufferPointer) -> (count: Int, isComplete: Bool)? {
        guard let openChannel, ending.intent == nil, writes.isEmpty, !writes.isClosing else { return nil }
        return openChannel._withUnsafeGuaranteedRef { channel in
            guard !channel.hasUnsentBytes else { return nil }
            let count = write(bytes, to: channel)
            let isComplete = count == bytes.count && !channel.hasUnsentBytes
            // The write failed or filled the kernel's buffer. The pump handles the rest.
            if !isComplete { needsPump = true }
            return (count, isComplete)
        }
    }

    /// Writes bytes from a delegate callback if the delegate is unlikely to write more. That is the case if
    /// no event, such as the completion of another write, is pending and no received bytes are unread.
    /// Returns `false` if the bytes must be queued.
    func writeAtOnce(_ bytes: UnsafeRawBufferPointer, timeout: Double, tag: Int) -> Bool {
        guard !bytes.isEmpty, events.isEmpty, reads.preBuffer.isEmpty else { return false }
        guard let (count, isComplete) = writeAtOnce(bytes) else { return false }
        if isComplete {
            events.append(.didWrite(tag: tag))
        } else {
            // Queue all of them, because the progress of a write is counted from its first byte.
            writes.append(WritePacket(data: Data(bytes), timeout: timeout, completion: .delegate(tag: tag)))
            writes.handOn(count)
            isWriting = true
        }
        return true
    }

    /// Queues the rest of a partially sent write. If `rest` is `nil`, only bytes inside the channel remain.
    func queueRest(_ rest: Data?, _ completion: Completion<Void>) {
        isWriting = true
        guard let rest else { return writes.appendHandedOn(completion) }
        writes.append(WritePacket(data: rest, timeout: -1, completion: completion, isBegun: true))
    }
}

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Operations of tasks, and writes of bytes that a delegate borrows, that need not wait: nothing is allocated
// for them.
extension DataPath {
    /// False when a read could be served or fail now, or has the connection go on to its end.
    func isQuiet(for goal: ReadPacket.Goal) -> Bool { isQuiet && !reads.wantsNothing(goal) }

    /// Serves a read that is not queued; nil when it has to wait.
    ///
    /// - Parameter isOpen: More bytes may be fetched.
    func readAtOnce(_ packet: inout ReadPacket, isOpen: Bool) -> ReadHalf.Answer? {
        guard let channel, reads.packets.isEmpty else { return nil }
        for _ in 0..<ByteChannel.roundsPerTurn {
            if let answer = reads.serveAtOnce(&packet) {
                // Room is free again, and what was unread may have held up the end.
                if !isCollecting, channel.mayHaveBytes || ending.mayDecide { needsPump = true }
                return answer
            }
            if isCollecting { flush() }
            guard channel.mayHaveBytes, isOpen, reads.wantsBytes, case .bytes = fill(from: channel) else { return nil }
        }
        return nil
    }

    /// Calls `body` with the bytes that are there, and takes them. False: no byte is there, or a read waits.
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

    /// Writes as much as possible of bytes that are in no queue; nil when they have to be queued as a whole.
    /// `queueRest` follows for those that are left, or that the channel keeps.
    func writeAtOnce(_ bytes: UnsafeRawBufferPointer) -> (count: Int, isComplete: Bool)? {
        guard let openChannel, ending.intent == nil, writes.isEmpty, !writes.isClosing else { return nil }
        return openChannel._withUnsafeGuaranteedRef { channel in
            guard !channel.hasUnsentBytes else { return nil }
            let count = write(bytes, to: channel)
            let isComplete = count == bytes.count && !channel.hasUnsentBytes
            // A write that fails, or fills the kernel's buffer: the pump goes on with what is left.
            if !isComplete { needsPump = true }
            return (count, isComplete)
        }
    }

    /// Writes bytes of a delegate that is being called, when nothing suggests that it writes more: no event
    /// waits, such as the end of another write, and no byte lies unread. False: they have to be queued.
    func writeAtOnce(_ bytes: UnsafeRawBufferPointer, timeout: Double, tag: Int) -> Bool {
        guard !bytes.isEmpty, events.isEmpty, reads.preBuffer.isEmpty else { return false }
        guard let (count, isComplete) = writeAtOnce(bytes) else { return false }
        if isComplete {
            events.append(.didWrite(tag: tag))
        } else {
            // All of them: the progress of a write counts from its first byte.
            writes.append(WritePacket(data: Data(bytes), timeout: timeout, completion: .delegate(tag: tag)))
            writes.handOn(count)
            isWriting = true
        }
        return true
    }

    /// Queues what is left of a write that has begun; nil: nothing but what the channel keeps.
    func queueRest(_ rest: Data?, _ completion: Completion<Void>) {
        isWriting = true
        guard let rest else { return writes.appendHandedOn(completion) }
        writes.append(WritePacket(data: rest, timeout: -1, completion: completion, isBegun: true))
    }
}

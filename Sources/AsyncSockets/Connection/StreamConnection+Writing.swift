internal import Glibc
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The half of a connection that sends. A class for the same reason as `ReadHalf`.
final class WriteHalf {
    @exclusivity(unchecked) var queue = WriteQueue()
    /// Why no byte can be sent any more.
    @exclusivity(unchecked) var ending: AsyncSocketError?
    /// The file that was being sent cannot be read any more: what the peer has is cut short.
    @exclusivity(unchecked) var hasBrokenFile = false
    /// When to try again, after the kernel had no memory to send with.
    @exclusivity(unchecked) var retry: Deadline?
    /// How long a write that has failed waits for the delegate to read what came before the end.
    @exclusivity(unchecked) var patience: Deadline?
    @exclusivity(unchecked) var timer = OperationTimer()
    /// The kernel takes bytes, or has not yet said that it does not (`kSocketCanAcceptBytes`).
    @exclusivity(unchecked) var canAcceptBytes = false
    /// The user wants to write nothing after what is queued.
    @exclusivity(unchecked) var isClosing = false
    /// Our FIN has been sent, and with TLS the close_notify before it.
    @exclusivity(unchecked) var isFinished = false
    /// The delegate has been told of the high-water mark, and the queue has not been down to half of it
    /// since.
    @exclusivity(unchecked) var isAboveHighWater = false

    var canSend: Bool { canAcceptBytes && ending == nil }

    /// The reset that a write has met. The kernel tells of it once: who receives after that is told of an end
    /// in good order.
    var reset: AsyncSocketError? { ending?.errno == ECONNRESET ? ending : nil }

    /// How far the oldest write has come; nil when there is none.
    var progress: OperationProgress? {
        queue.progress
    }
}

/// Bytes going down: writes, engine, kernel.
extension StreamConnection {
    /// The most bytes that a call gives to the kernel, which copies so many in some fifty microseconds.
    private static let sendLimit = 256 * 1024
    /// The most bytes of a file that a call has the kernel send: no more than sendfile(2) moves at a time.
    private static let fileLimit = 64 * 1024

    func enqueue(_ packet: consuming WritePacket) {
        guard closeIntent == nil, !writes.isClosing, packet.count > 0 else { return }
        // Nearly always nothing waits.
        if writes.queue.waitingMemoryByteCount > 0, !packet.isFile {
            let limit = max(configuration.maximumPendingWriteBytes.count, 0)
            if wouldExceed(limit, with: packet.count) { return close(.writeQueueFull(limit)) }
        }
        if case .closed = phase { return }
        guard writes.queue.append(packet) else { return close(.writeQueueFull(.max)) }
        needsPump = true
    }

    /// True when `count` more bytes would be too many. What can be sent does not count, nor do files, and one
    /// write alone is never too much.
    private func wouldExceed(_ limit: Int, with count: Int) -> Bool {
        var exceeds: Bool {
            (1...).contains(writes.queue.waitingMemoryByteCount) && count > limit - writes.queue.waitingMemoryByteCount
        }
        if exceeds { pumpIfNeeded() }
        return exceeds
    }

    /// Nothing is written after what is queued now (`shutdown(2)` with `SHUT_WR`, and a close_notify before
    /// it).
    func closeWriteStream() {
        writes.isClosing = true
        needsPump = true
    }

    func reportHighWater() {
        guard let mark = configuration.writeHighWaterMark, !writes.isAboveHighWater else { return }
        let waiting = writes.queue.waitingByteCount
        guard mark > 0, waiting >= mark else { return }
        writes.isAboveHighWater = true
        report(.highWater(waiting))
    }

    private func reportLowWater() {
        let waiting = writes.queue.waitingByteCount
        guard waiting <= (configuration.writeHighWaterMark ?? 0) / 2 else { return }
        writes.isAboveHighWater = false
        report(.lowWater(waiting))
    }

    func pumpWrites(to descriptor: SocketDescriptor) {
        for _ in 0..<Self.roundsPerTurn {
            guard !writes.queue.isEmpty, writes.canSend, let answer = sendNext(to: descriptor) else { return }
            if let count = noteSent(answer) {
                writes.queue.handOn(count)
                completeWrites()
            }
        }
        if writes.canSend { askForTurn() }
    }

    /// Nil when there is nothing to send.
    private func sendNext(to descriptor: SocketDescriptor) -> SocketDescriptor.SendAnswer? {
        if let file = writes.queue.nextFile {
            // An error behind the first part would be lost to the bytes before it.
            return descriptor.send(file.region, at: file.position, count: min(file.remaining, Self.fileLimit))
        }
        var answer: SocketDescriptor.SendAnswer?
        _ = writes.queue.withNextParts(limit: Self.sendLimit) { answer = descriptor.send($0) }
        return answer
    }

    func pumpWrites(through engine: TLSEngine, to descriptor: SocketDescriptor) {
        guard engine.hasOutput || !writes.queue.isEmpty else { return }
        for _ in 0..<Self.roundsPerTurn {
            sendCiphertext(engine, descriptor)
            guard writes.canSend, !engine.hasOutput else { return }
            completeWrites()
            guard encryptSome(with: engine, descriptor) else { return }
        }
        askForTurn()
    }

    /// Sends our FIN, and the close_notify before it, once everything else has been sent.
    func finishWriting(_ descriptor: SocketDescriptor) {
        guard writes.isClosing, !writes.isFinished, writes.queue.isEmpty else { return }
        if let engine = upgrade.engine {
            engine.shutdown()
            sendCiphertext(engine, descriptor)
            guard !engine.hasOutput else { return }
        }
        writes.isFinished = true
        descriptor.shutdownWriting()
    }

    /// Encrypts queued writes until the block of `output` is full; false when there were none.
    private func encryptSome(with engine: TLSEngine, _ descriptor: SocketDescriptor) -> Bool {
        while writes.queue.waitingByteCount > 0 {
            let records = (BufferPool.blockSize - engine.output.count) / TLSEngine.encryptedRecordLimit
            guard records > 0 else { return true }
            switch encryptNext(with: engine, limit: records * TLSEngine.recordLimit) {
            case .accepted(let count): writes.queue.handOn(count)
            case nil, .incomplete: return engine.hasOutput
            case .failed(let error):
                // The alert goes out while it can.
                sendCiphertext(engine, descriptor)
                writes.ending = AsyncSocketError(error, operation: "write")
                return false
            }
        }
        return engine.hasOutput
    }

    /// Encrypts at most `limit` bytes of one write, or several small writes as one record; nil when there is
    /// nothing to encrypt.
    private func encryptNext(with engine: TLSEngine, limit: Int) -> TLSEngine.WriteAnswer? {
        guard let file = writes.queue.nextFile else {
            var answer: TLSEngine.WriteAnswer?
            _ = writes.queue.withNextBytes(limit: TLSEngine.recordLimit, alone: limit) { answer = engine.write($0) }
            return answer
        }
        let count = min(file.remaining, limit)
        let scratch = PreBuffer()
        let room = scratch.writableBytes(minimum: count).prefix(count)
        do throws(SystemError) {
            scratch.commit(try file.region.read(at: file.position, into: UnsafeMutableRawBufferPointer(rebasing: room)))
        } catch {
            writes.ending = AsyncSocketError(error, operation: "write")
            writes.hasBrokenFile = true
            return nil
        }
        defer { scratch.reset() }
        return engine.write(scratch.readableBytes)
    }

    /// Sends what the engine has produced. Called after every call to the engine, failed ones too: an alert
    /// may be in it.
    func sendCiphertext(_ engine: TLSEngine, _ descriptor: SocketDescriptor) {
        let output = engine.output
        while !output.isEmpty, writes.canSend {
            if let count = noteSent(descriptor.send(output.readableBytes)) { output.consume(count) }
        }
        // No one will get it any more; and an engine that has too much to send reads nothing, so that the end
        // would never be found.
        if writes.ending != nil { output.reset() }
    }

    /// The number of bytes that the kernel took, if it took any; otherwise notes why it did not.
    func noteSent(_ answer: SocketDescriptor.SendAnswer) -> Int? {
        switch answer {
        case .bytes(let count): return count
        case .wouldBlock: writes.canAcceptBytes = false
        case .exhausted:
            writes.canAcceptBytes = false
            writes.retry = Deadline(after: SocketDescriptor.shortageSeconds)
        case .failed(let error):
            writes.ending = AsyncSocketError(error, operation: "write")
            writes.hasBrokenFile = error.errno == ENODATA || error.errno == EIO
            // The end may have come with bytes before it that the loop has not told of yet.
            reads.mayHaveBytes = true
            reads.trustsShortReads = false
        }
        return nil
    }

    /// Nothing that was handed on waits here any more: those packets are complete.
    private func completeWrites() {
        while let tag = writes.queue.removeHandedOn() {
            writes.timer.advance()
            report(.didWrite(tag: tag))
        }
        if let (count, tag) = writes.queue.takeProgress() { report(.didWritePartial(count, tag: tag)) }
        if writes.isAboveHighWater { reportLowWater() }
    }
}

extension AsyncSocketError {
    fileprivate static func writeQueueFull(_ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            .writeQueueFull, blame: .caller, operation: "write",
            message: "more than \(limit) bytes would have waited to be written")
    }
}

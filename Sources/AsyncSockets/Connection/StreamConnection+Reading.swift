internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The half of a connection that receives.
///
/// A class, so that a closure over one part of it may touch another. Exclusivity is not checked at run time:
/// the turn sees to it.
final class ReadHalf {
    @exclusivity(unchecked) var queue = ReadQueue()
    /// Bytes that have been received (and decrypted) and that no read has taken yet.
    let preBuffer = PreBuffer()
    @exclusivity(unchecked) var timer = OperationTimer()
    /// The kernel may have bytes: it has said so, and has not said since that there are none.
    @exclusivity(unchecked) var mayHaveBytes = false
    /// A recv that brings less than there was room for has emptied the kernel's buffer, and whatever comes
    /// after it is a new event (epoll(7)).
    ///
    /// Not so once the FIN has been announced, which is done once: then zero has still to be read. And not
    /// where Linux stops a recv early: before urgent data (tcp(7)), and on a Unix-domain socket behind bytes
    /// that descriptors came with (unix(7)).
    @exclusivity(unchecked) var trustsShortReads = true
    /// The kernel has reported a reset or a hang-up.
    @exclusivity(unchecked) var hasHangup = false
    /// Why no byte will follow those in `preBuffer` (`kSocketHasReadEOF`).
    @exclusivity(unchecked) var ending: AsyncSocketError?
    /// The TLS engine has been told of the FIN, and says itself how the stream ends.
    @exclusivity(unchecked) var engineKnowsEnd = false
    /// The delegate knows that no byte will follow, and the connection goes on (`kReadStreamClosed`).
    @exclusivity(unchecked) var isClosed = false

    /// How many bytes are read ahead of any request, so that a FIN is noticed.
    static let readAheadLimit = 64 * 1024

    /// How far the oldest read has come; nil when there is none.
    var progress: OperationProgress? {
        queue.progress(in: preBuffer)
    }

    /// True when the next bytes from the peer are wanted now.
    var wantsBytes: Bool {
        guard ending == nil else { return false }
        switch queue.front {
        case .read: return true
        case .startTLS: return false
        case .nothing: return preBuffer.count < Self.readAheadLimit
        }
    }

    /// How many bytes may be fetched into `preBuffer` now.
    var room: Int {
        queue.isEmpty ? Self.readAheadLimit - preBuffer.count : Self.readAheadLimit
    }

    /// True when bytes wait for a read: whatever becomes of the connection, they stay.
    var hasUnreadBytes: Bool {
        queue.front == .nothing && !preBuffer.isEmpty
    }

    /// True when the stream has ended and no queued read can be served any more.
    var isExhausted: Bool {
        guard ending != nil else { return false }
        switch queue.front {
        case .read: return true
        case .startTLS: return false
        case .nothing: return preBuffer.isEmpty
        }
    }
}

/// Bytes going up: kernel, engine, `preBuffer`, reads.
extension StreamConnection {
    /// The most rounds of receiving that one turn makes before others on the loop have theirs.
    static let roundsPerTurn = 4

    func enqueue(_ packet: consuming ReadPacket) {
        guard closeIntent == nil else { return }
        reads.queue.append(packet)
        writes.patience = nil
        needsPump = true
    }

    func pumpReads(from descriptor: SocketDescriptor) {
        guard reads.mayHaveBytes || reads.queue.mayBeServed(from: reads.preBuffer) else { return }
        pumpReads { receive(into: reads.preBuffer, limit: reads.room, from: descriptor) }
    }

    func pumpReads(through engine: TLSEngine, from descriptor: SocketDescriptor) {
        guard reads.mayHaveBytes || engine.mayHaveAnswer || reads.queue.mayBeServed(from: reads.preBuffer) else { return }
        pumpReads { decrypt(with: engine, from: descriptor) }
    }

    /// Serves reads and fetches what they lack, round by round. `fetch` is true when it brought bytes.
    private func pumpReads(_ fetch: () -> Bool) {
        for _ in 0..<Self.roundsPerTurn {
            serveReads()
            guard reads.wantsBytes, fetch() else { return }
        }
        serveReads()
        if reads.wantsBytes { askForTurn() }
    }

    /// One `recv` of at most `limit` bytes into `buffer`; false when it brought nothing.
    func receive(into buffer: PreBuffer, limit: Int, from descriptor: SocketDescriptor) -> Bool {
        guard reads.mayHaveBytes, reads.ending == nil else { return false }
        let writable = buffer.writableBytes(minimum: min(limit, BufferPool.blockSize / 4))
        let room = UnsafeMutableRawBufferPointer(rebasing: writable.prefix(limit))
        let answer = descriptor.receive(into: room)
        guard case .bytes(let count) = answer else {
            buffer.commit(0)
            noteSilence(answer)
            return false
        }
        buffer.commit(count)
        if count < room.count, reads.trustsShortReads { reads.mayHaveBytes = false }
        return true
    }

    private func noteSilence(_ answer: SocketDescriptor.ReceiveAnswer) {
        reads.mayHaveBytes = false
        switch answer {
        case .bytes, .wouldBlock: break
        case .endOfFile: reads.ending = writes.reset ?? .closedByPeer
        case .failed(let error): reads.ending = AsyncSocketError(error, operation: "read")
        }
    }

    /// Fills `preBuffer` with plaintext; fetches ciphertext for as long as the engine needs more.
    private func decrypt(with engine: TLSEngine, from descriptor: SocketDescriptor) -> Bool {
        for _ in 0..<Self.roundsPerTurn {
            let answer = engine.read(into: reads.preBuffer, limit: reads.room)
            sendCiphertext(engine, descriptor)
            switch answer {
            case .bytes: return true
            case .closed:
                reads.ending = .closedByPeer
                return false
            case .failed(let error):
                reads.ending = AsyncSocketError(error, operation: "read")
                return false
            case .incomplete:
                guard receiveCiphertext(for: engine, from: descriptor) else { return false }
            }
        }
        // A peer that sends much ciphertext and no data (KeyUpdates, empty records) does not keep the others
        // waiting.
        askForTurn()
        return false
    }

    /// One `recv` into `sslPreBuffer`, unless the engine has yet to take what is there. The end of the stream
    /// is the engine's to judge: true then too, so that it is asked.
    func receiveCiphertext(for engine: TLSEngine, from descriptor: SocketDescriptor) -> Bool {
        guard engine.received.count < BufferPool.blockSize else { return false }
        if receive(into: engine.received, limit: BufferPool.blockSize, from: descriptor) { return true }
        guard let ending = reads.ending, ending.code == .closedByPeer, !reads.engineKnowsEnd else { return false }
        reads.ending = nil
        reads.engineKnowsEnd = true
        engine.receiveEndOfFile()
        return true
    }

    /// Gives the reads at the front what is in `preBuffer`, until one has to wait.
    private func serveReads() {
        while reads.queue.mayBeServed(from: reads.preBuffer), let answer = reads.queue.serve(from: reads.preBuffer) {
            switch consume answer {
            case .incomplete: return reportReadProgress()
            case .complete(let data, let tag):
                reads.timer.advance()
                report(.didRead(consume data, tag: tag))
            case .maxedOut(let maxLength): return close(.readMaxedOut(maxLength))
            }
        }
    }

    private func reportReadProgress() {
        if let (count, tag) = reads.queue.takeProgress(in: reads.preBuffer) { report(.didReadPartial(count, tag: tag)) }
    }

    /// Ends the oldest read without completing it.
    func abandonRead(_ error: AsyncSocketError) {
        guard let (bytesSoFar, tag) = reads.queue.abandon(from: reads.preBuffer) else { return }
        reads.timer.advance()
        report(.didNotRead(bytesSoFar, tag: tag, error))
    }
}

extension AsyncSocketError {
    fileprivate static func readMaxedOut(_ maxLength: Int) -> AsyncSocketError {
        AsyncSocketError(
            .readMaxedOut, blame: .peer, operation: "read",
            message: "what was waited for did not come within maxLength, \(maxLength) bytes")
    }
}

internal import Glibc
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// How a connection ends: when its user wants it, when the peer does, when something failed.
extension StreamConnection {
    /// An empty intent: at once.
    func closeWhenDone(_ intent: CloseIntent) {
        guard !intent.isEmpty else {
            sendWhatWaits()
            return close(nil)
        }
        closeIntent = (closeIntent ?? []).union(intent)
        needsPump = true
    }

    /// Before an end that the user wants: gives the kernel what was written just before. An error that this
    /// meets is of no interest any more.
    private func sendWhatWaits() {
        guard needsPump, case .connected(let descriptor) = phase else { return }
        switch upgrade {
        case .plaintext, .queuedTLS: pumpWrites(to: descriptor)
        case .handshaking, .awaitingTrust: break
        case .secure(let engine): pumpWrites(through: engine, to: descriptor)
        }
    }

    /// After the pumps have done what they could: starts the clocks of what is current now, and sees whether
    /// this is the end.
    func finishPump(_ descriptor: SocketDescriptor) {
        finishWriting(descriptor)
        if reads.ending != nil {
            endReadToEnd()
            closeReadStreamIfDone()
        }
        if let seconds = reads.queue.timeout { reads.timer.startIfNeeded(seconds: seconds) }
        if let seconds = writes.queue.timeout { writes.timer.startIfNeeded(seconds: seconds) }
        if let closeIntent, closeIntent.isMet(readsDone: reads.queue.isEmpty, writesDone: writes.queue.isEmpty) {
            return close(nil)
        }
        if mayHaveEnded, let error = endOfConnection(descriptor) { close(error) }
    }

    /// The stream has ended, and the read that waits for that gets what there is: as data after an end in
    /// good order, otherwise with the reason.
    private func endReadToEnd() {
        guard let ending = reads.ending, reads.queue.isAtReadToEnd else { return }
        guard ending.code == .closedByPeer else { return abandonRead(ending) }
        guard let (data, tag) = reads.queue.finishReadToEnd() else { return }
        reads.timer.advance()
        report(.didRead(data, tag: tag))
    }

    /// Half-duplex: the peer has closed its side in good order, and what it sent has been read. Reads cannot
    /// be served any more, and say so.
    private func closeReadStreamIfDone() {
        guard reads.ending != nil, staysOpenForWriting, reads.isExhausted else { return }
        if !reads.isClosed {
            reads.isClosed = true
            report(.didCloseReadStream)
        }
        while case .read = reads.queue.front { abandonRead(.closedByPeer) }
    }

    private var staysOpenForWriting: Bool {
        !configuration.autoDisconnectOnClosedReadStream && reads.ending?.code == .closedByPeer && !writes.isFinished
    }

    /// False as long as nothing has been heard of an end, of which there are three ways.
    private var mayHaveEnded: Bool {
        reads.ending != nil || writes.ending != nil || reads.hasHangup
    }

    /// Why the connection cannot go on, if so. Bytes that came before any end stay readable for as long as
    /// someone may read them.
    private func endOfConnection(_ descriptor: SocketDescriptor) -> AsyncSocketError? {
        if writes.hasBrokenFile { return writes.ending }
        if reads.isExhausted, !staysOpenForWriting { return reads.ending }
        let mayStillRead = reads.hasUnreadBytes ? !hasWaitedForReads() : reads.wantsBytes && reads.mayHaveBytes
        if let error = writes.ending, !mayStillRead { return staysOpenForWriting ? error : reads.ending ?? error }
        // What the kernel says of a connection that is not being read from, for whatever reason.
        if reads.hasHangup, !reads.wantsBytes, !reads.hasUnreadBytes, let error = descriptor.takeError(of: "poll") {
            return AsyncSocketError(error, operation: "read")
        }
        return nil
    }

    /// True when a write has failed and no one has asked for the bytes that came before the end: who waits
    /// for that write must be told.
    private func hasWaitedForReads() -> Bool {
        guard writes.ending != nil, !writes.queue.isEmpty else { return false }
        guard let patience = writes.patience else {
            writes.patience = Deadline(after: configuration.failedWriteGrace)
            return false
        }
        return patience <= .now
    }

    /// Ends everything, once: the descriptor, the queues, the buffers, the engine. `didDisconnect` is the
    /// last event.
    func close(_ error: AsyncSocketError?) {
        let ended = phase
        phase = .closed
        withdrawDescriptor()
        switch ended {
        case .resolving(_, let lookup): lookup?.cancel()
        case .connecting(let connector, _): connector.cancel()
        case .negotiating(let descriptor, _):
            loop.unwatch(descriptor)
            descriptor.close()
        case .connected(let descriptor): part(from: descriptor, error)
        case .idle, .waiting: break
        case .closed: return
        }
        dropEverything()
        facts.withLock { facts in
            facts.isOver = true
            facts.isConnected = false
        }
        log("closed", error.map { ["error": "\($0)"] } ?? [:])
        // Before whoever is told of the end can ask.
        publishProgress()
        report(.didDisconnect(error))
        if !waitsForClosing { closed.reach() }
    }

    private func part(from descriptor: SocketDescriptor, _ error: AsyncSocketError?) {
        if let engine = upgrade.engine, !writes.hasBrokenFile {
            engine.shutdown()
            sendCiphertext(engine, descriptor)
        }
        loop.unwatch(descriptor)
        let rest = writes.ending == nil ? upgrade.engine?.output : nil
        // A close with unread bytes resets the connection, and a reset overtakes what we sent last: an alert,
        // or the end of the data.
        if writes.hasBrokenFile {
            // The peer must not take the FIN for the end of what it was promised.
            try? descriptor.set(.linger, to: 0)
            descriptor.close()
        } else if error?.tls != nil || error?.code == .handshakeTimeout || closeIntent?.contains(.afterWrites) == true
            || rest?.isEmpty == false
        {
            LingeringClose.begin(with: descriptor, sending: rest?.readableBytes, on: loop)
        } else {
            descriptor.close()
        }
    }

    /// From here on no one else can reach the descriptor.
    private func withdrawDescriptor() {
        // Handed out of the lock: what goes with the last reference takes locks of its own.
        _ = facts.withLock { $0.withdrawDescriptor() }
    }

    /// Also stops the pump that may have found the end: nothing is fetched or sent after it.
    private func dropEverything() {
        clock = nil
        upgrade = .plaintext
        reads.mayHaveBytes = false
        reads.ending = reads.ending ?? .closedByPeer
        // A connection on which nothing waits has nothing to say.
        let waiting = writes.queue.waitingMemoryByteCount + reads.preBuffer.count
        if waiting > 0 { HeapTrimmer.shared.noteFreed(waiting) }
        reads.queue.removeAll()
        reads.preBuffer.reset()
        writes.canAcceptBytes = false
        writes.queue.removeAll()
    }
}

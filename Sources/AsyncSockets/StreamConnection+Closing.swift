internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// How a connection ends: when its user wants it, when the peer does, when something failed.
extension StreamConnection {
    /// An empty intent: at once.
    func closeWhenDone(_ intent: CloseIntent) {
        guard !intent.isEmpty else { return close(nil) }
        closeIntent = (closeIntent ?? []).union(intent)
        pump()
    }

    /// After the pumps have done what they could: starts the clocks of what is current now, and sees whether this is the end.
    func finishPump(_ descriptor: SocketDescriptor) {
        if case .packet(let packet) = reads.queue.front { reads.timer.startIfNeeded(seconds: packet.timeout) }
        if let packet = writes.queue.current { writes.timer.startIfNeeded(seconds: packet.timeout) }
        if let closeIntent, closeIntent.isMet(readsDone: reads.queue.isEmpty, writesDone: writes.queue.isEmpty) {
            return close(nil)
        }
        if let error = endOfConnection(descriptor) { close(error) }
    }

    /// Why the connection cannot go on, if so. Bytes that came before the end stay readable for as long as someone may read them.
    private func endOfConnection(_ descriptor: SocketDescriptor) -> AsyncSocketError? {
        if reads.isExhausted { return reads.ending }
        let mayStillRead = reads.wantsBytes && reads.mayHaveBytes
        if let error = writes.ending, !mayStillRead { return reads.ending ?? error }
        if reads.isBrokenOff, !reads.wantsBytes, let error = descriptor.takeError(of: "poll") {
            return AsyncSocketError(error, operation: "read")
        }
        return nil
    }

    /// Ends everything, once: the descriptor, the queues, the buffers, the engine. `didDisconnect` is the last event.
    func close(_ error: AsyncSocketError?) {
        let ended = phase
        phase = .closed
        withdrawDescriptor()
        switch ended {
        case .connecting(let descriptor, _, _, _):
            loop.unwatch(descriptor)
            descriptor.close()
        case .connected(let descriptor): part(from: descriptor, error)
        case .idle, .resolving: break
        case .closed: return
        }
        dropEverything()
        facts.withLock { facts in
            facts.isOver = true
            facts.isConnected = false
        }
        report(.didDisconnect(error))
    }

    private func part(from descriptor: SocketDescriptor, _ error: AsyncSocketError?) {
        if let engine = upgrade.engine {
            engine.shutdown()
            sendCiphertext(engine, descriptor)
        }
        loop.unwatch(descriptor)
        // A close with unread bytes resets the connection, and a reset overtakes what we sent last: an alert, or the end of the data.
        if error?.tls != nil || closeIntent?.contains(.afterWrites) == true {
            Farewell.begin(with: descriptor, on: loop)
        } else {
            descriptor.close()
        }
    }

    /// From here on nobody else can reach the descriptor.
    private func withdrawDescriptor() {
        // Handed out of the lock: what goes with the last reference takes locks of its own.
        _ = facts.withLock { facts -> SocketDescriptor? in
            defer { facts.descriptor = nil }
            return facts.descriptor
        }
    }

    private func dropEverything() {
        clock = nil
        upgrade = .plaintext
        reads.queue.removeAll()
        reads.preBuffer.reset()
        writes.queue.removeAll()
    }
}

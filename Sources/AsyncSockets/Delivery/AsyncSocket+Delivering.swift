// All calls to the delegate of an `AsyncSocket`, and to the bodies of `perform(_:)`, are in this file.
// `Documentation/Architecture.md` lists the other files that call user code.

internal import Dispatch
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

extension AsyncSocket: EventSocket {
    typealias Event = DelegateEvent
    typealias Delegate = any AsyncSocketDelegate
    typealias Source = StreamConnection

    var delegateChangeCount: Int { delegateChanges.load(ordering: .acquiring) }

    func copyDelegate(to delegate: inout (any AsyncSocketDelegate)?, _ queue: inout DispatchQueue?) {
        // Copied in place, because each additional copy of the delegate would be reference counted, which is
        // expensive for a weakly referenced object.
        state.withLock { $0.audience.copy(to: &delegate, &queue) }
    }

    func beginCallbacks(of source: StreamConnection) {
        callback.open(for: source)
    }

    func endCallbacks() {
        callback.close()
    }

    /// - Parameter delegate: `nil` if it was released or never set. Decisions that the delegate would make
    ///   then default to closing the connection.
    func deliver(_ event: consuming DelegateEvent, to delegate: (any AsyncSocketDelegate)?) {
        switch consume event {
        case .didAccept(let connection):
            deliver(connection, to: delegate)
        case .didStopListening(let listener):
            vacate(listener)
            deliver(.didDisconnect(listener.failure), to: delegate)
        case .didConnect(let host, let port):
            delegate?.socket(self, didConnectToHost: host, port: port)
        case .didConnectToPath(let path):
            delegate?.socket(self, didConnectToPath: path)
        case .progressed(let progress):
            delegate?.socket(self, connectionProgressed: progress)
        case .didRead(let data, let tag):
            delegate?.socket(self, didRead: data, withTag: tag)
        case .didReadBytes(let bytes, let tag):
            bytes.lend { delegate?.socket(self, didReadBytes: $0, withTag: tag) }
        case .didReadPartial(let count, let tag):
            delegate?.socket(self, didReadPartialDataOfLength: count, tag: tag)
        case .didNotRead(let data, let tag, let error):
            delegate?.socket(self, didNotReadDataWithTag: tag, bytesSoFar: data, dueToError: error)
        case .didCloseReadStream:
            delegate?.socketDidCloseReadStream(self)
        case .didWrite(let tag):
            delegate?.socket(self, didWriteDataWithTag: tag)
        case .didWritePartial(let count, let tag):
            delegate?.socket(self, didWritePartialDataOfLength: count, tag: tag)
        case .highWater(let count):
            delegate?.socket(self, writeQueueReachedHighWater: count)
        case .lowWater(let count):
            delegate?.socket(self, writeQueueReachedLowWater: count)
        case .readTimedOut(let late):
            let (tag, elapsed, bytesDone) = (late.tag, late.elapsed, late.bytesDone)
            late.answer(delegate?.socket(self, shouldTimeoutReadWithTag: tag, elapsed: elapsed, bytesDone: bytesDone) ?? 0)
        case .writeTimedOut(let late):
            let (tag, elapsed, bytesDone) = (late.tag, late.elapsed, late.bytesDone)
            late.answer(delegate?.socket(self, shouldTimeoutWriteWithTag: tag, elapsed: elapsed, bytesDone: bytesDone) ?? 0)
        case .didReceiveTrust(let trust, let answer):
            guard let delegate else { return answer(false) }
            delegate.socket(self, didReceive: trust, completionHandler: answer)
        case .didSecure:
            delegate?.socketDidSecure(self)
        case .didReceiveClientCertificate(let result):
            delegate?.socket(self, didReceiveClientCertificate: result)
        case .didDisconnect(let error):
            delegate?.socketDidDisconnect(self, withError: error)
            delegate?.socketDidDisconnect(self, withError: error as (any Error)?)
        }
    }

    /// Enqueues the end event of a listener on the delegate queue. Called by the `disconnect()` that closed
    /// the listener, so that the event is already enqueued when `disconnect()` returns. The loop enqueues the
    /// event too, in case the delegate is inline or has moved to another queue; it is delivered only once.
    func sendEnd(of listener: Listener, _ outlet: EventOutlet<AsyncSocket>) {
        guard listener.hasBegun, let queue = delegateQueue, queue !== socketQueue else { return }
        queue.async { [weak self] in
            guard let self else { return }
            var (delegate, current): ((any AsyncSocketDelegate)?, DispatchQueue?) = (nil, nil)
            copyDelegate(to: &delegate, &current)
            guard current === queue, listener.claimEnd() else { return }
            deliver(.didStopListening(listener), to: delegate)
            outlet.end.reach()
        }
    }

    private func deliver(_ accepted: AcceptedConnection, to delegate: (any AsyncSocketDelegate)?) {
        guard let delegate else { return accepted.deliver(.noDelegate) }
        guard accepted.listener.isOpen else { return }
        let socketQueue = delegate.newSocketQueueForConnection(fromAddress: accepted.peer, on: self)
        guard accepted.listener.isOpen else { return }
        do throws(AsyncSocketError) {
            var socket = try makeChild(socketQueue)
            let connection = try socket.prepare(accepted)
            // The delegate must receive the socket before any events of the connection, so the connection
            // starts only after this call.
            delegate.socket(self, didAcceptNewSocket: socket)
            if isKnownUniquelyReferenced(&socket) {
                if !socket.isDisconnected { accepted.deliver(.notKept) }
                socket.removeDelegate()
                return withExtendedLifetime(socket) { connection.begin(with: accepted.descriptor) }
            }
            // `begin` may call the delegate, which may release the last reference to the socket. Do not hold
            // a reference during the call.
            _ = consume socket
            connection.begin(with: accepted.descriptor)
        } catch {
            accepted.deliver(.failed(error))
        }
    }

    /// Calls the body of `perform(_:)`.
    ///
    /// - Parameter descriptor: The descriptor, or `nil` if no descriptor is open.
    static func call(_ body: (Int32?) -> Void, with descriptor: Int32?) {
        body(descriptor)
    }
}

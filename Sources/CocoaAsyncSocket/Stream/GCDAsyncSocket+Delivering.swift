// Translates the core's events into delegate callbacks. All calls to a stream delegate are in this file. The
// code runs on the delegate queue, except for the task that `ask` starts.

internal import AsyncSockets
internal import Foundation
internal import SocketBuffers

extension CoreEvents: AsyncSocketDelegate where Owner == GCDAsyncSocket {
    // MARK: - Accepting and connecting

    func newSocketQueueForConnection(fromAddress address: SocketEndpoint, on socket: AsyncSocket) -> DispatchQueue? {
        nextQueue = owner.flatMap { $0.listener?.newSocketQueueForConnection(fromAddress: address.data, on: $0) }
        return nextQueue
    }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        defer { nextQueue = nil }
        // Without a delegate, no reference to the new connection is kept, so the core closes it (D16).
        guard let owner, let listener = owner.listener else { return }
        let child = owner.makeChild(socketQueue: nextQueue)
        child.takeOver(newSocket)
        listener.socket(owner, didAcceptNewSocket: child)
    }

    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
        owner.map { $0.listener?.socket($0, didConnectToHost: host, port: port) }
    }

    func socket(_ socket: AsyncSocket, didConnectToPath path: String) {
        owner.map { $0.listener?.socket($0, didConnectTo: URL(fileURLWithPath: path)) }
    }

    // MARK: - Reading and writing

    /// - Parameter ticket: The read's ticket in the owner's `ReadLedger`.
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag ticket: Int) {
        // The lookup fails for a read from an earlier connection.
        guard let owner, let read = owner.reads.take(ticket) else { return }
        read.store(data)
        owner.listener?.socket(owner, didRead: data, withTag: read.tag)
    }

    func socket(_ socket: AsyncSocket, didReadPartialDataOfLength partialLength: Int, tag ticket: Int) {
        guard let owner, let tag = owner.reads.tag(of: ticket) else { return }
        owner.listener?.socket(owner, didReadPartialDataOfLength: UInt(partialLength), tag: tag)
    }

    func socket(
        _ socket: AsyncSocket, didNotReadDataWithTag ticket: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError
    ) {
        // CocoaAsyncSocket has no callback for a read that cannot complete because the peer closed the
        // connection (D18).
        _ = owner?.reads.take(ticket)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        owner.map { $0.listener?.socket($0, didWriteDataWithTag: tag) }
    }

    func socket(_ socket: AsyncSocket, didWritePartialDataOfLength partialLength: Int, tag: Int) {
        owner.map { $0.listener?.socket($0, didWritePartialDataOfLength: UInt(partialLength), tag: tag) }
    }

    func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag ticket: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        guard let owner, let tag = owner.reads.tag(of: ticket) else { return 0 }
        return owner.listener?.socket(owner, shouldTimeoutReadWithTag: tag, elapsed: elapsed, bytesDone: UInt(length)) ?? 0
    }

    func socket(
        _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        guard let owner else { return 0 }
        return owner.listener?.socket(owner, shouldTimeoutWriteWithTag: tag, elapsed: elapsed, bytesDone: UInt(length)) ?? 0
    }

    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        owner.map { $0.listener?.socketDidCloseReadStream($0) }
    }

    // MARK: - TLS

    func socketDidSecure(_ socket: AsyncSocket) {
        owner.map { $0.listener?.socketDidSecure($0) }
    }

    func socket(
        _ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) {
        guard let owner, let listener = owner.listener else { return completionHandler(false) }
        let evaluation = owner.facts.withLock { $0.trust }
        listener.socket(owner, didReceive: SecTrust(trust.chain, evaluation), completionHandler: completionHandler)
    }

    // MARK: - Disconnecting

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        guard let owner else { return }
        let epoch = owner.reads.epoch
        if owner.core.isDisconnected { owner.reads.end(at: epoch) }
        owner.listener?.socketDidDisconnect(owner, withError: error.map(\.asStreamError))
    }
}

extension GCDAsyncSocket {
    /// The delegate, or `nil` if the socket has no queue to call it on.
    fileprivate var listener: (any GCDAsyncSocketDelegate)? {
        facts.withLock { $0.delegateQueue == nil ? nil : $0.delegate }
    }

    /// Calls the delegate's asynchronous method. As on Apple platforms, that method does not run on the
    /// delegate queue.
    func ask(
        _ delegate: any GCDAsyncSocketDelegate, about trust: SecTrust, _ answer: @escaping @Sendable (Bool) -> Void
    ) {
        nonisolated(unsafe) let (judge, socket) = (delegate, self)
        // Swift 6.2 accepts these captures if the closure is explicitly Sendable.
        Task { @Sendable in answer(await judge.socket(socket, didReceive: trust)) }
    }
}

// The reports of the core, in the words of the original. All of it is called on the delegate queue, and all
// calls of a stream delegate are in this file.

internal import AsyncSockets
internal import Foundation
internal import SocketBuffers

extension GCDAsyncSocket: SocketEventReceiver {
    /// The delegate, if there is a queue to call it on.
    private var listener: (any GCDAsyncSocketDelegate)? {
        facts.withLock { $0.delegateQueue == nil ? nil : $0.delegate }
    }

    // MARK: - Beginnings

    func queueForConnection(from address: SocketAddress) -> DispatchQueue? {
        listener?.newSocketQueueForConnection(fromAddress: address.data, on: self)
    }

    func didAccept(_ socket: AsyncSocket, on socketQueue: DispatchQueue?) {
        // Without a delegate the core closes the connection, since nothing keeps it (D16).
        guard let listener else { return }
        let child = makeChild(socketQueue: socketQueue)
        child.takeOver(socket)
        listener.socket(self, didAcceptNewSocket: child)
    }

    func didConnect(toHost host: String, port: UInt16) {
        listener?.socket(self, didConnectToHost: host, port: port)
    }

    func didConnect(toPath path: String) {
        listener?.socket(self, didConnectTo: URL(fileURLWithPath: path))
    }

    // MARK: - Reading and writing

    func didRead(_ data: Data, ticket: Int) {
        // Nil: a read of an earlier connection.
        guard let read = reads.take(ticket) else { return }
        read.store(data)
        listener?.socket(self, didRead: data, withTag: read.tag)
    }

    func didReadPart(_ count: Int, ticket: Int) {
        guard let tag = reads.tag(of: ticket) else { return }
        listener?.socket(self, didReadPartialDataOfLength: UInt(count), tag: tag)
    }

    func didNotRead(ticket: Int) {
        // The original has no callback for a read that the peer's end makes impossible (D18).
        _ = reads.take(ticket)
    }

    func didWrite(tag: Int) {
        listener?.socket(self, didWriteDataWithTag: tag)
    }

    func didWritePart(_ count: Int, tag: Int) {
        listener?.socket(self, didWritePartialDataOfLength: UInt(count), tag: tag)
    }

    func extraTime(forRead ticket: Int, elapsed: TimeInterval, bytesDone: Int) -> TimeInterval {
        guard let tag = reads.tag(of: ticket) else { return 0 }
        return listener?.socket(self, shouldTimeoutReadWithTag: tag, elapsed: elapsed, bytesDone: UInt(bytesDone)) ?? 0
    }

    func extraTime(forWrite tag: Int, elapsed: TimeInterval, bytesDone: Int) -> TimeInterval {
        listener?.socket(self, shouldTimeoutWriteWithTag: tag, elapsed: elapsed, bytesDone: UInt(bytesDone)) ?? 0
    }

    func didCloseReadStream() {
        listener?.socketDidCloseReadStream(self)
    }

    // MARK: - TLS

    func didSecure() {
        listener?.socketDidSecure(self)
    }

    func didReceive(_ trust: PeerTrust, answer: @escaping @Sendable (Bool) -> Void) {
        guard let listener else { return answer(false) }
        let evaluation = facts.withLock { $0.trust }
        listener.socket(self, didReceive: SecTrust(trust.chain, evaluation), completionHandler: answer)
    }

    /// Asks the delegate's asynchronous method. On Apple platforms too it runs outside of the delegate queue.
    func ask(
        _ delegate: any GCDAsyncSocketDelegate, about trust: SecTrust, _ answer: @escaping @Sendable (Bool) -> Void
    ) {
        nonisolated(unsafe) let (judge, socket) = (delegate, self)
        Task { answer(await judge.socket(socket, didReceive: trust)) }
    }

    // MARK: - The end

    func didDisconnect(_ error: AsyncSocketError?) {
        let epoch = reads.epoch
        if core.isDisconnected { reads.end(at: epoch) }
        listener?.socketDidDisconnect(self, withError: error.map(\.asStreamError))
    }
}

internal import AsyncSockets
internal import Dispatch
internal import FoundationEssentials

/// The receiver of what a core socket reports.
///
/// All of it is called on the delegate queue.
protocol SocketEventReceiver: AnyObject {
    func queueForConnection(from address: SocketAddress) -> DispatchQueue?
    func didAccept(_ socket: AsyncSocket, on socketQueue: DispatchQueue?)
    func didConnect(toHost host: String, port: UInt16)
    func didConnect(toPath path: String)
    func didRead(_ data: Data, ticket: Int)
    func didReadPart(_ count: Int, ticket: Int)
    func didNotRead(ticket: Int)
    func didWrite(tag: Int)
    func didWritePart(_ count: Int, tag: Int)
    func extraTime(forRead ticket: Int, elapsed: TimeInterval, bytesDone: Int) -> TimeInterval
    func extraTime(forWrite tag: Int, elapsed: TimeInterval, bytesDone: Int) -> TimeInterval
    func didCloseReadStream()
    func didSecure()
    func didReceive(_ trust: PeerTrust, answer: @escaping @Sendable (Bool) -> Void)
    func didDisconnect(_ error: AsyncSocketError?)
}

/// The core's delegate: the core holds it weakly, and its receiver owns it.
///
/// An object of its own, so that `GCDAsyncSocket` does not show the core's delegate methods beside its own.
/// When the receiver has gone, questions get the answer that ends the connection.
final class SocketEvents: AsyncSocketDelegate {
    weak var receiver: (any SocketEventReceiver)?
    /// The queue of the socket that the next call brings.
    private var queueOfNext: DispatchQueue?

    func newSocketQueueForConnection(fromAddress address: SocketAddress, on socket: AsyncSocket) -> DispatchQueue? {
        queueOfNext = receiver?.queueForConnection(from: address)
        return queueOfNext
    }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        receiver?.didAccept(newSocket, on: queueOfNext)
        queueOfNext = nil
    }

    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
        receiver?.didConnect(toHost: host, port: port)
    }

    func socket(_ socket: AsyncSocket, didConnectToPath path: String) {
        receiver?.didConnect(toPath: path)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        receiver?.didRead(data, ticket: tag)
    }

    func socket(_ socket: AsyncSocket, didReadPartialDataOfLength partialLength: Int, tag: Int) {
        receiver?.didReadPart(partialLength, ticket: tag)
    }

    func socket(
        _ socket: AsyncSocket, didNotReadDataWithTag tag: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError
    ) {
        receiver?.didNotRead(ticket: tag)
    }

    func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        receiver?.extraTime(forRead: tag, elapsed: elapsed, bytesDone: length) ?? 0
    }

    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        receiver?.didCloseReadStream()
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        receiver?.didWrite(tag: tag)
    }

    func socket(_ socket: AsyncSocket, didWritePartialDataOfLength partialLength: Int, tag: Int) {
        receiver?.didWritePart(partialLength, tag: tag)
    }

    func socket(
        _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        receiver?.extraTime(forWrite: tag, elapsed: elapsed, bytesDone: length) ?? 0
    }

    func socket(
        _ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) {
        guard let receiver else { return completionHandler(false) }
        receiver.didReceive(trust, answer: completionHandler)
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        receiver?.didSecure()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        receiver?.didDisconnect(error)
    }
}

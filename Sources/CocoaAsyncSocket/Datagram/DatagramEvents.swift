internal import AsyncSockets

/// The receiver of what a core UDP socket reports, on the delegate queue.
protocol DatagramEventReceiver: AnyObject {
    func didConnect(to address: SocketAddress)
    func didNotConnect(_ error: AsyncSocketError)
    func didSend(tag: Int)
    func didNotSend(tag: Int, _ error: AsyncSocketError)
    func didReceive(_ datagram: Datagram, context: AnyObject?)
    func didClose(_ socket: AsyncUDPSocket, _ error: AsyncSocketError?)
}

/// The core's delegate: the core holds it weakly, and its receiver owns it.
final class DatagramEvents: AsyncUDPSocketDelegate {
    weak var receiver: (any DatagramEventReceiver)?

    func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketAddress) {
        receiver?.didConnect(to: address)
    }

    func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError) {
        receiver?.didNotConnect(error)
    }

    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) {
        receiver?.didSend(tag: tag)
    }

    func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {
        receiver?.didNotSend(tag: tag, error)
    }

    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        receiver?.didReceive(datagram, context: (context as? FilterContext)?.object)
    }

    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) {
        receiver?.didClose(socket, error)
    }
}

/// An object that a receive filter has added to a datagram. It goes from the filter's queue to the
/// delegate's, and the filter does not keep it.
final class FilterContext: Sendable {
    nonisolated(unsafe) let object: AnyObject?

    init(_ object: AnyObject?) {
        self.object = object
    }
}

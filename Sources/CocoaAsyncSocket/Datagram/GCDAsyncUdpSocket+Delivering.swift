// The reports of the core, in the words of the original. All of it is called on the delegate queue, and all
// calls of a UDP delegate are in this file.

internal import AsyncSockets
internal import Foundation
internal import SocketBuffers

extension GCDAsyncUdpSocket: DatagramEventReceiver {
    /// The delegate, if there is a queue to call it on.
    private var listener: (any GCDAsyncUdpSocketDelegate)? {
        audience.withLock { $0.queue == nil ? nil : $0.delegate }
    }

    func didConnect(to address: SocketAddress) {
        listener?.udpSocket(self, didConnectToAddress: address.data)
    }

    func didNotConnect(_ error: AsyncSocketError) {
        listener?.udpSocket(self, didNotConnect: error.asDatagramError)
    }

    func didSend(tag: Int) {
        listener?.udpSocket(self, didSendDataWithTag: tag)
    }

    func didNotSend(tag: Int, _ error: AsyncSocketError) {
        // The original drops what waits when the socket is closed.
        guard error.code != .closed else { return }
        listener?.udpSocket(self, didNotSendDataWithTag: tag, dueToError: error.asDatagramError)
    }

    func didReceive(_ datagram: Datagram, context: AnyObject?) {
        let limit = facts.withLock { $0.limit(of: datagram) }
        let data = datagram.data.count > limit ? Data(datagram.data.prefix(limit)) : datagram.data
        listener?.udpSocket(self, didReceive: data, fromAddress: datagram.sender.data, withFilterContext: context)
    }

    func didClose(_ socket: AsyncUDPSocket, _ error: AsyncSocketError?) {
        let retired = facts.withLock { $0.noteEnd(of: socket) }
        withExtendedLifetime(retired) {
            listener?.udpSocketDidClose(self, withError: error.map(\.asDatagramError))
        }
    }
}

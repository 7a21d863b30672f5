// Translates the core's events into delegate callbacks. All code here runs on the delegate queue, and all
// calls to a UDP delegate are in this file.

internal import AsyncSockets
internal import Foundation
internal import SocketBuffers

extension CoreEvents: AsyncUDPSocketDelegate where Owner == GCDAsyncUdpSocket {
    func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketEndpoint) {
        owner.map { $0.listener?.udpSocket($0, didConnectToAddress: address.data) }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError) {
        owner.map { $0.listener?.udpSocket($0, didNotConnect: error.asDatagramError) }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) {
        owner.map { $0.listener?.udpSocket($0, didSendDataWithTag: tag) }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {
        // CocoaAsyncSocket drops queued datagrams without a callback when the socket closes.
        guard error.code != .closed else { return }
        owner.map { $0.listener?.udpSocket($0, didNotSendDataWithTag: tag, dueToError: error.asDatagramError) }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        guard let owner else { return }
        let limit = owner.facts.withLock { $0.limit(of: datagram) }
        let data = datagram.data.count > limit ? Data(datagram.data.prefix(limit)) : datagram.data
        let context = (context as? FilterContext)?.object
        owner.listener?.udpSocket(owner, didReceive: data, fromAddress: datagram.sender.data, withFilterContext: context)
    }

    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) {
        guard let owner else { return }
        let retired = owner.facts.withLock { $0.noteEnd(of: socket) }
        withExtendedLifetime(retired) {
            owner.listener?.udpSocketDidClose(owner, withError: error.map(\.asDatagramError))
        }
    }
}

extension GCDAsyncUdpSocket {
    /// The delegate, or `nil` if the socket has no queue to call it on.
    fileprivate var listener: (any GCDAsyncUdpSocketDelegate)? {
        audience.withLock { $0.queue == nil ? nil : $0.delegate }
    }
}

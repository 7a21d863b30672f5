internal import Logging
internal import SocketCore

/// An accepted connection for which a socket has not been created yet. If the connection is dropped before
/// then, its descriptor closes.
final class AcceptedConnection: Sendable {
    let descriptor: SocketDescriptor
    let peer: SocketEndpoint
    let listener: Listener
    /// `nil` unless the peer is a proxy.
    private let proxiedPlace: ProxiedPlace?

    init(descriptor: SocketDescriptor, peer: SocketEndpoint, listener: Listener) {
        self.descriptor = descriptor
        self.peer = peer
        self.listener = listener
        proxiedPlace = descriptor.proxiedPlace
    }

    /// The source to which limits apply. A connection from a proxy has the source of the client in its
    /// header, or none if the header names no client.
    func source(with header: ProxyHeader?) -> SourceKey? {
        guard proxiedPlace != nil else { return listener.source(of: peer) }
        return header?.client.flatMap { listener.source(of: $0) }
    }

    /// Charges a connection from a proxy to the client in its header. Returns an error if the client's source
    /// has as many connections as are allowed.
    func charge(to header: ProxyHeader?) -> AsyncSocketError? {
        guard let client = header?.client, let proxiedPlace, !proxiedPlace.charge(to: client) else { return nil }
        return listener.noteCrowd(of: client)
    }

    /// Logs a connection for which no socket was created or kept, and notifies the observer.
    func deliver(_ loss: AcceptLoss) {
        log(loss)
        ConnectionObservation.deliver(loss, of: peer, to: listener.observer)
    }

    /// Logs why the connection was closed immediately, and how to prevent it. Only the first loss is logged
    /// as a warning, so that peers cannot flood the log.
    private func log(_ loss: AcceptLoss) {
        let reason: String
        switch loss {
        case .noDelegate:
            reason = "the listener's delegate was released: keep a reference to it, because a socket holds its delegate weakly"
        case .notKept:
            reason =
                "the new socket was released: store it in socket(_:didAcceptNewSocket:) and keep it until socketDidDisconnect"
        case .failed(let error):
            return listener.logger.error("an accepted connection was lost", metadata: ["error": "\(error)"])
        }
        let level: Logger.Level = listener.isFirstLoss() ? .warning : .debug
        listener.logger.log(
            level: level, "an accepted connection was closed immediately because \(reason)",
            metadata: ["peer": "\(peer)", "listener": "\(listener.localAddress.map(String.init(describing:)) ?? "closed")"])
    }
}

extension ProxyHeader {
    /// `nil` if the header does not name a client, as in a proxy's health check.
    fileprivate var client: SocketEndpoint? { transport == .stream ? source : nil }
}

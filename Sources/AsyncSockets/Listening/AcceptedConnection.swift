internal import Logging
internal import SocketCore

/// An accepted connection for which a socket has not been created yet. If the connection is dropped before
/// then, its descriptor closes.
final class AcceptedConnection: Sendable {
    let descriptor: SocketDescriptor
    let peer: SocketEndpoint
    let listener: Listener

    init(descriptor: SocketDescriptor, peer: SocketEndpoint, listener: Listener) {
        self.descriptor = descriptor
        self.peer = peer
        self.listener = listener
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

internal import Logging
internal import SocketCore

/// An accepted connection for which a socket has not been created yet. If the connection is dropped before
/// then, its descriptor closes.
final class AcceptedConnection: Sendable {
    let descriptor: SocketDescriptor
    let peer: SocketAddress
    let listener: Listener

    init(descriptor: SocketDescriptor, peer: SocketAddress, listener: Listener) {
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
            reason = "the listener's delegate is gone: keep a reference to it, since a socket holds its delegate weakly"
        case .notKept:
            reason =
                "nothing keeps it: store the new socket in socket(_:didAcceptNewSocket:), in a property or an array, until its socketDidDisconnect"
        case .failed(let error):
            return listener.logger.error("an accepted connection is lost", metadata: ["error": "\(error)"])
        }
        let level: Logger.Level = listener.isFirstLoss() ? .warning : .debug
        listener.logger.log(
            level: level, "an accepted connection was closed at once, since \(reason)",
            metadata: ["peer": "\(peer)", "listener": "\(listener.localAddress.map(String.init(describing:)) ?? "closed")"])
    }
}

internal import Logging
internal import SocketCore

/// A connection that a listener has accepted, on its way to become a socket. If it is dropped on the way, its
/// descriptor closes.
final class AcceptedConnection: Sendable {
    let descriptor: SocketDescriptor
    let peer: SocketAddress
    let listener: Listener

    init(descriptor: SocketDescriptor, peer: SocketAddress, listener: Listener) {
        self.descriptor = descriptor
        self.peer = peer
        self.listener = listener
    }

    /// It has no socket: logs that, and has the observer know.
    func deliver(_ loss: AcceptLoss) {
        log(loss)
        ConnectionObservation.deliver(loss, of: peer, to: listener.observer)
    }

    /// Logs that the connection was closed at once, and what to do about it: as a warning the first time
    /// only, so that peers cannot fill the log.
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

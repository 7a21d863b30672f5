internal import Logging
internal import SocketCore

/// A connection that a listener has accepted, on its way to become a socket. If it is dropped on the way, its
/// descriptor closes.
struct AcceptedConnection: Sendable {
    let descriptor: SocketDescriptor
    let peer: SocketAddress
    let listener: Listener

    /// Logs that the connection was closed at once, and what to do about it: as a warning the first time
    /// only, so that peers cannot fill the log.
    func log(_ loss: AcceptLoss) {
        let reason: String
        switch loss {
        case .noDelegate: reason = "the listener has no delegate any more: keep the delegate, which a socket holds weakly"
        case .notKept:
            reason =
                "no one kept it: store the new socket in socket(_:didAcceptNewSocket:), in a property or an array, until its socketDidDisconnect"
        case .failed(let error):
            return listener.logger.error("an accepted connection is lost", metadata: ["error": "\(error)"])
        }
        let level: Logger.Level = listener.isFirstLoss() ? .warning : .debug
        listener.logger.log(
            level: level, "an accepted connection was closed at once, since \(reason)",
            metadata: ["peer": "\(peer)", "listener": "\(listener.localAddress.map(String.init(describing:)) ?? "closed")"])
    }
}

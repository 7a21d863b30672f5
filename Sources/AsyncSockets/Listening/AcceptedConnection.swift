internal import Logging
internal import SocketCore

/// A connection that a listener has accepted, on its way to become a socket. When it is dropped on the way
/// its descriptor is closed.
struct AcceptedConnection: Sendable {
    let descriptor: SocketDescriptor
    let peer: SocketAddress
    let listener: Listener

    /// Why no one has the connection.
    enum Loss: String {
        case noDelegate = "the listener has no delegate any more: keep the delegate, which a socket holds weakly"
        case notKept =
            "nobody kept it: store the new socket in socket(_:didAcceptNewSocket:), in a property or an array, until its socketDidDisconnect"
    }

    /// Says that the connection is closed at once, and what to do about it: the first time as a warning, so
    /// that peers cannot fill the log.
    func log(_ loss: Loss) {
        let level: Logger.Level = listener.isFirstLoss() ? .warning : .debug
        listener.logger.log(
            level: level, "an accepted connection was closed at once, since \(loss.rawValue)",
            metadata: ["peer": "\(peer)", "listener": "\(listener.localAddress.map(String.init(describing:)) ?? "closed")"])
    }
}

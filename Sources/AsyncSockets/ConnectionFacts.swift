internal import SocketCore
internal import SocketTLS

/// What anyone may ask about a connection at any time: a snapshot behind a lock, written inside the turn.
struct ConnectionFacts {
    var isConnected = false
    /// Closed, or never to be connected.
    var isOver = false
    var isSecure = false
    /// `startTLS` has been called: it can be only once.
    var isUpgradeClaimed = false
    var localAddress: SocketAddress?
    var remoteAddress: SocketAddress?
    var session: TLSSession?
}

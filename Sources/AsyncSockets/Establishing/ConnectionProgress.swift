public import SocketCore

/// A step on the way to a connection.
///
/// Attempts overlap (RFC 8305), so several addresses may be tried before the first fails. An attempt that is
/// delivered neither as failed nor as connected was cancelled, because another one connected first or the
/// connect ended.
public enum ConnectionProgress: Sendable, Hashable {
    /// The usable addresses of the host, in the order in which they will be tried. Not delivered when you
    /// gave an address instead of a host.
    case resolved([SocketAddress])
    /// An attempt to connect to this address begins.
    case trying(SocketAddress)
    /// The attempt has failed; others may follow.
    case failed(SocketAddress, AsyncSocketError)
    /// The connection is established; the other attempts are cancelled. With a proxy, this is the connection
    /// to the proxy.
    case connected(SocketAddress)
}

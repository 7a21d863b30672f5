public import SocketCore

/// A step on the way to a connection.
///
/// Attempts go on beside each other (RFC 8305), so several addresses may be tried before the first has
/// failed. One that is reported neither as failed nor as connected was given up because another one connected
/// first, or because the whole has ended.
public enum ConnectionProgress: Sendable, Hashable {
    /// The host has these addresses that may be used, in the order in which they will be tried. Not told when
    /// an address was given instead of a host.
    case resolved([SocketAddress])
    /// An attempt to connect to this address begins.
    case trying(SocketAddress)
    /// The attempt has failed; others may follow.
    case failed(SocketAddress, AsyncSocketError)
    /// The connection is up; the other attempts have been given up. With a proxy, this is the one to the
    /// proxy.
    case connected(SocketAddress)
}

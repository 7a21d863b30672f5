public import SocketCore

/// A step in establishing a connection.
///
/// Attempts overlap (RFC 8305), so several addresses may be tried before the first attempt fails. An attempt
/// that is reported neither as failed nor as connected was cancelled, because another attempt succeeded
/// first or the whole connect operation failed or was cancelled.
@nonexhaustive
public enum ConnectionProgress: Sendable, Hashable {
    /// The usable addresses of the host, in the order in which they will be tried. Not reported if you
    /// connect to an address instead of a host.
    case resolved([SocketEndpoint])
    /// An attempt to connect to this address has started.
    case trying(SocketEndpoint)
    /// The attempt to connect to this address failed. More attempts may follow.
    case failed(SocketEndpoint, AsyncSocketError)
    /// The connection is established and all other attempts are cancelled. With a proxy, this is the
    /// connection to the proxy.
    case connected(SocketEndpoint)
}

internal import FoundationEssentials
internal import Logging
internal import SocketCore

/// How the connections of a socket behave, chosen by its user. A plain value: each connection has its own,
/// and gets changes by a message.
///
/// It is large and seldom changes, so it is stored and passed on as `Shared`.
struct SocketConfiguration: Sendable {
    typealias Shared = CopyOnWrite<SocketConfiguration>

    /// The configuration that a socket starts with.
    static let initial = Shared(SocketConfiguration())

    /// The configuration that a socket without a delegate starts with.
    static let ofTasks: Shared = {
        var configuration = SocketConfiguration()
        configuration.autoDisconnectOnClosedReadStream = false
        configuration.isServingTasks = true
        return Shared(configuration)
    }()

    /// Grows with each change: of two that overtake each other on the way to a connection, the later one
    /// wins.
    var version = 0
    /// `kIPv4Disabled`, the other way round.
    var isIPv4Enabled = true
    /// `kIPv6Disabled`, the other way round.
    var isIPv6Enabled = true
    /// `kPreferIPv6`, the other way round.
    var isIPv4PreferredOverIPv6 = true
    /// Seconds from the start of one attempt to connect to the start of the next.
    var alternateAddressDelay: TimeInterval = 0.3
    /// Resolves host names.
    var resolver = Resolver.system
    /// The proxy that connects to hosts on our behalf; nil: none.
    var proxy: Proxy?
    /// No delegate was ever set, and the next value was not chosen by the user.
    var isServingTasks = false
    /// `kAllowHalfDuplexConnection`, the other way round.
    var autoDisconnectOnClosedReadStream = true
    /// The grace period after a failed write, in seconds: how long bytes that came before the end hold up the
    /// end; infinite: no limit.
    var failedWriteGrace: TimeInterval = 1
    /// A read that times out does not end the connection.
    var keepsConnectionOnReadTimeout = false
    /// The most bytes that may wait in memory to be written.
    var maximumPendingWriteBytes = ByteLimit.mebibytes(64)
    /// The number of waiting bytes at which the delegate gets a callback; nil: never.
    var writeHighWaterMark: Int?
    /// The logger; nil: the library's.
    var logger: Logger?
    /// The observer of connections, handshakes and pauses; nil: none.
    var observer: (any SocketObserver)?
    /// The most accepted connections that may be open; nil: no limit.
    var maximumAcceptedConnections: Int?
}

/// Values that few sockets have, in one place, so that the others have no room for them.
struct SocketExtras: Sendable {
    var userData: (any Sendable)?
    var proxyHeader: ProxyHeader?

    var isEmpty: Bool { userData == nil && proxyHeader == nil }
}

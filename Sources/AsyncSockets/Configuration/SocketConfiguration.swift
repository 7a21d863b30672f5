internal import FoundationEssentials
internal import Logging
internal import SocketCore

/// What the user of a socket has set for its connections. A plain value: each connection has its own, and
/// hears of changes by a message.
///
/// It is large and seldom changed, so it is kept and handed round as `Shared`.
struct SocketConfiguration: Sendable {
    typealias Shared = CopyOnWrite<SocketConfiguration>

    /// What a socket begins with.
    static let initial = Shared(SocketConfiguration())

    /// Grows with each change, so that of two that overtake each other on the way to a connection the later
    /// one stays.
    var version = 0
    /// `kIPv4Disabled`, the other way round.
    var isIPv4Enabled = true
    /// `kIPv6Disabled`, the other way round.
    var isIPv6Enabled = true
    /// `kPreferIPv6`, the other way round.
    var isIPv4PreferredOverIPv6 = true
    /// Seconds between the beginning of one attempt to connect and that of the next.
    var alternateAddressDelay: TimeInterval = 0.3
    /// Who is asked for the addresses of hosts.
    var resolver = Resolver.system
    /// Who makes connections to hosts on our behalf; nil: no one.
    var proxy: Proxy?
    /// `kAllowHalfDuplexConnection`, the other way round.
    var autoDisconnectOnClosedReadStream = true
    /// The seconds for which bytes that came before the end stay readable while a write that has failed waits
    /// to be told so; infinite: without end.
    var failedWriteGrace: TimeInterval = 1
    /// A read that times out ends alone, and not the connection.
    var keepsConnectionOnReadTimeout = false
    /// The bytes that may wait in memory to be written at most.
    var maximumPendingWriteBytes = ByteLimit.mebibytes(64)
    /// The number of waiting bytes from which on the delegate is told; nil: never.
    var writeHighWaterMark: Int?
    /// Where what happens is logged; nil: with the library's logger.
    var logger: Logger?
    /// The accepted connections that may be open at most; nil: no limit.
    var maximumAcceptedConnections: Int?
}

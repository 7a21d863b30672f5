internal import FoundationEssentials
internal import Logging
internal import SocketCore

/// How the connections of a socket behave, chosen by its user. A plain value: each connection has a copy and
/// receives changes as messages.
///
/// The value is large and seldom changes, so it is stored and passed on as `Shared`.
struct SocketConfiguration: Sendable {
    typealias Shared = CopyOnWrite<SocketConfiguration>

    static let initial = Shared(SocketConfiguration())

    /// The initial configuration of a socket without a delegate.
    static let ofTasks: Shared = {
        var configuration = SocketConfiguration()
        configuration.autoDisconnectOnClosedReadStream = false
        configuration.isServingTasks = true
        return Shared(configuration)
    }()

    /// Incremented with each change, so that the later of two changes wins if they reach a connection out of
    /// order.
    var version = 0
    /// The inverse of `kIPv4Disabled`.
    var isIPv4Enabled = true
    /// The inverse of `kIPv6Disabled`.
    var isIPv6Enabled = true
    /// The inverse of `kPreferIPv6`.
    var isIPv4PreferredOverIPv6 = true
    var alternateAddressDelay: TimeInterval = 0.3
    var resolver = Resolver.system
    var proxy: SocketProxy?
    /// Whether no delegate was ever set and the user has not set `autoDisconnectOnClosedReadStream`.
    var isServingTasks = false
    /// The inverse of `kAllowHalfDuplexConnection`.
    var autoDisconnectOnClosedReadStream = true
    /// The grace period after a failed write, in seconds. It limits how long unread bytes delay closing the
    /// connection. Infinity means no limit.
    var failedWriteGrace: TimeInterval = 1
    var keepsConnectionOnReadTimeout = false
    var maximumPendingWriteBytes = 64 << 20
    var writeHighWaterMark: Int?
    var readRateLimit: ByteRate?
    var writeRateLimit: ByteRate?
    /// `nil` for the library's logger.
    var logger: Logger?
    var observer: (any SocketObserver)?
    var maximumConnections = 10_000
    /// `nil` for four fifths of `maximumConnections`.
    var maximumConnectionsPerSource: Int?
}

extension SocketConfiguration {
    func enabledFamilies(_ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> AddressFamilies {
        try AddressFamilies(isIPv4Enabled: isIPv4Enabled, isIPv6Enabled: isIPv6Enabled, operation)
    }

    // MARK: - Listening

    /// - Parameter interface: See `AsyncSocket.accept(onInterface:port:)`.
    func listenAddresses(of interface: String?, port: UInt16) throws(AsyncSocketError) -> [SocketEndpoint] {
        guard let interface else { return ["0.0.0.0", "::"].compactMap { SocketEndpoint(literal: $0, port: port) } }
        let families = try enabledFamilies(.listen)
        let addresses = try LocalInterface.named(interface, .listen, families: families).addresses
        return addresses.filter { families.allows($0.family) }.map { port == 0 ? $0 : $0.withPort(port) }
    }

    /// Returns the addresses of enabled families. The result is never empty.
    func enabled(_ addresses: [SocketEndpoint]) throws(AsyncSocketError) -> [SocketEndpoint] {
        let enabled = addresses.filter {
            switch $0.family {
            case .ipv4: isIPv4Enabled
            case .ipv6: isIPv6Enabled
            case .unix, .vsock: true
            }
        }
        guard !enabled.isEmpty else {
            throw .badConfiguration(
                .listen, "each address requires a disabled IP version: set isIPv4Enabled or isIPv6Enabled to true")
        }
        return enabled
    }
}

/// Values that few sockets use, stored separately so that other sockets reserve no memory for them.
struct SocketExtras: Sendable {
    var userData: (any Sendable)?
    var proxyHeader: ProxyHeader?

    var isEmpty: Bool { userData == nil && proxyHeader == nil }
}

internal import SocketBuffers

/// A limit on the rate of received datagrams or new connections, per source and in total. Those over the
/// limit are dropped or reset, and counted.
///
/// A source is an IPv4 address or an IPv6 `/64`, because a single host may be able to use any address in a
/// whole `/64` (RFC 6177). `SocketListener.sourcePrefix` changes this for connections.
///
/// The sender address of a datagram can be forged. If a server's replies are larger
/// than the requests, an attacker can use the server to flood a victim by forging the victim's address. A
/// per-source limit bounds how many replies one victim receives.
///
/// Each limit consists of a rate per second and a burst, the number accepted back-to-back after a pause. A
/// datagram or connection rejected by one limit does not count against the other.
///
/// `maximumSources` bounds the memory. A source is forgotten only when its full burst is available again, so
/// forgetting the source has no effect on it. If more than `maximumSources` sources have been active
/// recently, new sources share a few buckets and may be rejected earlier. Sources that are already tracked
/// are not affected.
public struct SourceRateLimit: Sendable, Hashable {
    /// A rate with a permitted burst.
    public struct Rate: Sendable, Hashable {
        /// The sustained number per second.
        public let perSecond: Double
        /// The number accepted back-to-back after a pause.
        public let burst: Int

        /// Creates a rate.
        ///
        /// - Parameters:
        ///   - perSecond: From 0.000001 to 1,000,000,000; other values are clamped. For example, 0.1 means
        ///     one every ten seconds.
        ///   - burst: At least 1; smaller values become 1.
        public init(perSecond: Double, burst: Int) {
            // A comparison with NaN is false, so NaN becomes the slowest rate.
            self.perSecond = perSecond >= Self.slowest ? min(perSecond, Self.fastest) : Self.slowest
            self.burst = burst.clamped(to: 1...)
        }

        private static let slowest = 0.000_001
        private static let fastest = 1_000_000_000.0
    }

    /// The limit for each source, or `nil` for no limit.
    public var perSource: Rate?
    /// The limit for all sources together, or `nil` for no limit.
    public var total: Rate?
    /// The maximum number of sources tracked at the same time. Each uses about 60 bytes.
    public let maximumSources: Int

    /// Creates a limit. A rate of `nil` means no limit.
    ///
    /// - Parameter maximumSources: From 1 to 1,048,576; other values are clamped.
    public init(perSource: Rate?, total: Rate? = nil, maximumSources: Int = 4096) {
        self.perSource = perSource
        self.total = total
        self.maximumSources = maximumSources.clamped(to: 1...1 << 20)
    }
}

/// How many datagrams are taken, from each source and in all; others are dropped and counted.
///
/// The sender of a datagram can be forged. A server that answers each request with a larger reply can be used
/// to flood others, who seem to have asked: a limit for each source bounds what one of them gets. A source is
/// an IPv4 address or a `/64` of IPv6, since one host may have a whole `/64` to choose from (RFC 6177).
///
/// Each limit is a number of datagrams for each second and a burst: so many may come at once after a pause.
/// A datagram that is refused by one limit does not count toward the other.
///
/// Memory is bounded by `trackedSources`, and a source is forgotten only when its whole burst is available
/// again, so that forgetting it changes nothing. When more sources than that have sent lately, the new ones
/// share some buckets with each other: they may be refused sooner, and the known ones notice nothing.
public struct DatagramRateLimit: Sendable, Hashable {
    /// So many datagrams for each second, with a burst.
    public struct Rate: Sendable, Hashable {
        /// The datagrams for each second, in the long run.
        public let perSecond: Double
        /// How many may come at once.
        public let burst: Int

        /// A rate.
        ///
        /// - Parameters:
        ///   - perSecond: 0.000001 to 1,000,000,000; another becomes the nearest. 0.1 is one datagram in ten
        ///     seconds.
        ///   - burst: At least 1; a smaller one becomes 1.
        public init(perSecond: Double, burst: Int) {
            // Not a number is less than nothing.
            self.perSecond = perSecond >= Self.slowest ? min(perSecond, Self.fastest) : Self.slowest
            self.burst = max(burst, 1)
        }

        private static let slowest = 0.000_001
        private static let fastest = 1_000_000_000.0
    }

    /// For each source; nil: no limit.
    public var perSource: Rate?
    /// For all sources together; nil: no limit.
    public var inAll: Rate?
    /// How many sources are remembered at once. Each takes some 60 bytes while it is remembered.
    public let trackedSources: Int

    /// A limit, or none where a rate is nil.
    ///
    /// - Parameter trackedSources: 1 to 1,048,576; another becomes the nearest.
    public init(perSource: Rate?, inAll: Rate? = nil, trackedSources: Int = 4096) {
        self.perSource = perSource
        self.inAll = inAll
        self.trackedSources = max(1, min(trackedSources, 1 << 20))
    }
}

/// The current state of a listener, with counts of accepted and refused connections.
///
/// Print it, or serve it as JSON with a `JSONEncoder`. `ServerMetrics` records it with swift-metrics.
public struct ServerSnapshot: Sendable, Hashable, Codable {
    /// Whether the listener is open: see `ServingListener.isListening`.
    public var isListening: Bool
    /// The number of open connections or, for a `DatagramListener`, of peers. Includes incomplete handshakes.
    public var openCount: Int
    /// The number of incomplete handshakes that count towards `maximumHandshakes`. For a `SocketListener`,
    /// this includes incomplete PROXY headers, but not upgrades that your program starts itself.
    public var handshakeCount: Int
    /// The number of accepted connections or peers that have no task yet, or whose handshake has not started
    /// because of `maximumHandshakes`.
    public var waitingCount: Int
    /// The memory for datagrams that the peers' sockets have not taken yet, in bytes: see
    /// `DatagramListener.maximumTotalPendingReceiveBytes`. 0 for a `SocketListener`.
    public var pendingByteCount: Int
    /// The number of connections or peers accepted since the listener was created. Includes replaced
    /// connections, and proxied connections that were refused after their header.
    public var acceptedCount: Int
    /// The refusals since the listener was created.
    public var refused: Refusals

    /// How many connections were refused, peers replaced and datagrams dropped, grouped by the limit that was
    /// reached.
    public struct Refusals: Sendable, Hashable, Codable {
        /// Connections that were refused because their source had reached `maximumConnectionsPerSource`. For
        /// a `DatagramListener`, peers that were replaced, and strangers' datagrams that were dropped,
        /// because of `maximumPeersPerSource`.
        public var bySource = 0
        /// Connections that were replaced because `maximumConnections` was reached. For a `DatagramListener`,
        /// peers that were replaced, and strangers' datagrams that were dropped, because of `maximumPeers`.
        public var byConnections = 0
        /// Handshakes that were replaced because `maximumHandshakes` was reached. For a `DatagramListener`,
        /// handshakes that were replaced because of `maximumHandshakes` or `maximumPeers`, and strangers'
        /// datagrams that were dropped because of `maximumHandshakes`.
        public var byHandshakes = 0
        /// Datagrams from strangers that were dropped because of `maximumTotalPendingReceiveBytes`.
        public var byPendingBytes = 0
        /// Connections that were refused because of `SocketListener.rateLimit`. For a `DatagramListener`,
        /// datagrams that were dropped because of the `AsyncUDPSocket.rateLimit` that `configure` set. With
        /// DTLS, that limit applies to strangers and to peers with an incomplete handshake.
        public var byRate = 0
        /// Strangers' datagrams that were dropped because the `DatagramListener` was closing.
        public var byClosing = 0
        /// With DTLS, strangers' datagrams that were dropped because they do not start a new handshake.
        public var invalid = 0

        /// Creates a value without refusals.
        public init() {}

        /// The sum of all numbers.
        public var total: Int { bySource + byConnections + byHandshakes + byPendingBytes + byRate + byClosing + invalid }
    }

    /// Creates an arbitrary snapshot, for tests.
    public init(
        isListening: Bool = true, openCount: Int = 0, handshakeCount: Int = 0, waitingCount: Int = 0,
        pendingByteCount: Int = 0, acceptedCount: Int = 0, refused: Refusals = Refusals()
    ) {
        (self.isListening, self.openCount, self.handshakeCount) = (isListening, openCount, handshakeCount)
        (self.waitingCount, self.pendingByteCount) = (waitingCount, pendingByteCount)
        (self.acceptedCount, self.refused) = (acceptedCount, refused)
    }
}

/// How many received datagrams a UDP socket has dropped, by reason.
public struct DroppedDatagrams: Sendable, Hashable, Codable {
    /// Datagrams that were damaged or did not fit into the kernel's receive buffer, and unexpected datagrams
    /// that exceeded the memory limit of an `exchange`. For a socket of a `DatagramListener`, datagrams that
    /// exceeded the listener's memory limits.
    ///
    /// A batch of datagrams from one sender (`UDP_GRO`, udp(7)) counts as one unless `maximumReceiveSize` is
    /// set. To enlarge the buffer, see `SocketOptionKey.receiveBufferSize`.
    public var overflowed = 0
    /// Datagrams dropped because of `rateLimit`.
    public var byRate = 0
    /// Records that DTLS dropped because they were malformed, not authentic or repeated, or because they
    /// exceeded the limits on buffered handshake data. Any host can send such records, and they have no other
    /// effect.
    public var invalid = 0

    /// Creates a value without drops.
    public init() {}

    /// The sum of all numbers.
    public var total: Int { overflowed + byRate + invalid }
}

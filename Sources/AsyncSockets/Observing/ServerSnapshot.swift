/// The current state of a listener, with the numbers of accepted and refused connections since its creation.
///
/// Print it, serve it as JSON with a `JSONEncoder`, or pass it to `ServerMetrics`.
public struct ServerSnapshot: Sendable, Hashable, Codable {
    /// Whether the listener is open: see `ServingListener.isListening`.
    public var isListening: Bool
    /// The number of open connections, or of peers of a `DatagramListener`. Includes incomplete
    /// handshakes.
    public var openCount: Int
    /// The number of incomplete handshakes that `maximumHandshakes` limits. For a `SocketListener`, this
    /// includes PROXY headers, but no upgrades that your program starts on an accepted socket.
    public var handshakeCount: Int
    /// The number of accepted connections or peers that have no task yet, or whose handshake has not started
    /// because of `maximumHandshakes`.
    public var waitingCount: Int
    /// The number of connections or peers accepted since the listener was created, including replaced ones.
    public var acceptedCount: Int
    /// The refusals since the listener was created.
    public var refused: Refusals

    /// The numbers of refused connections, or of dropped datagrams and replaced peers, by the limit that was
    /// reached.
    public struct Refusals: Sendable, Hashable, Codable {
        /// Connections that were reset because their source had reached `maximumConnectionsPerSource`.
        public var bySource = 0
        /// Connections that were replaced at `maximumConnections`. For a `DatagramListener`, peers that were
        /// replaced and datagrams from strangers that were dropped at `maximumPeers`.
        public var byConnections = 0
        /// Handshakes that were replaced at `maximumHandshakes`. For a `DatagramListener`, handshakes that
        /// were replaced at any limit, and datagrams from strangers that were dropped at `maximumHandshakes`.
        public var byHandshakes = 0
        /// Datagrams from strangers that were dropped because of `maximumTotalPendingReceiveBytes`.
        public var byPendingBytes = 0
        /// Connections that were reset because of `SocketListener.rateLimit`, or datagrams that were dropped
        /// because of `AsyncUDPSocket.rateLimit`, set in `configure`. With DTLS, the rate limit applies to
        /// strangers and to peers during their handshake.
        public var byRate = 0
        /// With DTLS, datagrams from strangers that do not start a handshake.
        public var invalid = 0

        /// Creates a value without refusals.
        public init() {}

        /// The sum of all numbers.
        public var total: Int { bySource + byConnections + byHandshakes + byPendingBytes + byRate + invalid }
    }

    /// Creates an arbitrary snapshot, for tests.
    public init(
        isListening: Bool = true, openCount: Int = 0, handshakeCount: Int = 0, waitingCount: Int = 0, acceptedCount: Int = 0,
        refused: Refusals = Refusals()
    ) {
        (self.isListening, self.openCount, self.handshakeCount) = (isListening, openCount, handshakeCount)
        (self.waitingCount, self.acceptedCount, self.refused) = (waitingCount, acceptedCount, refused)
    }
}

/// The numbers of received datagrams that a UDP socket has dropped, by reason.
public struct DroppedDatagrams: Sendable, Hashable, Codable {
    /// Datagrams dropped by the kernel because the receive buffer was full or they were damaged, and
    /// unexpected datagrams during an `exchange` that did not fit into its memory. For a socket of a
    /// `DatagramListener`, datagrams that did not fit into the memory of the listener.
    ///
    /// A batch of datagrams from one sender (`UDP_GRO`, udp(7)) counts as one unless `maximumReceiveSize` is
    /// set. To enlarge the buffer, see `SocketOptionKey.receiveBufferSize`.
    public var overflowed = 0
    /// Datagrams dropped because of `rateLimit`.
    public var byRate = 0
    /// Records that DTLS dropped because they were not DTLS, not authentic, or repeated. Any host can send
    /// such records, and they have no other effect.
    public var invalid = 0

    /// Creates a value without drops.
    public init() {}

    /// The sum of all numbers.
    public var total: Int { overflowed + byRate + invalid }
}

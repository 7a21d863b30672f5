public import Logging
internal import SocketBuffers
public import SocketCore
internal import SocketTLS

extension AsyncUDPSocket {
    /// Whether to use IPv4. True by default. A change takes effect at the next `bind`, `connect` or lookup.
    public var isIPv4Enabled: Bool {
        get { configuration.isIPv4Enabled }
        set { configure { $0.isIPv4Enabled = newValue } }
    }

    /// Whether to use IPv6. True by default. A change takes effect at the next `bind`, `connect` or lookup.
    public var isIPv6Enabled: Bool {
        get { configuration.isIPv6Enabled }
        set { configure { $0.isIPv6Enabled = newValue } }
    }

    /// Which version of IP to prefer for a host that has both: `.ipv4`, `.ipv6`, or nil (the default) for
    /// the order of the system's resolver (`setPreferIPv4`, `setPreferIPv6`, `setIPVersionNeutral`).
    public var preferredFamily: SocketAddress.Family? {
        get { configuration.preferredFamily }
        set { configure { $0.preferredFamily = newValue } }
    }

    /// How many bytes of a datagram are kept; more of them are lost (`DatagramArrival.isTruncated`). The
    /// default, 65,527, keeps all. Set it before `bind` or `connect`.
    ///
    /// With a smaller number, such as 2,048, the kernel hands over many datagrams at a time.
    public var maximumReceiveSize: Int {
        get { configuration.maximumReceiveSize }
        set { configure { $0.maximumReceiveSize = max(1, min(newValue, DatagramReceiver.largestSize)) } }
    }

    /// Whether each datagram has the time at which the kernel got it (`DatagramArrival.timeSince1970`). False
    /// by default. Set it before `bind` or `connect`.
    public var receivesTimestamps: Bool {
        get { configuration.receivesTimestamps }
        set { configure { $0.receivesTimestamps = newValue } }
    }

    /// How much memory the datagrams may take that the delegate has not had yet; 1 MiB by default. Each
    /// counts with its bytes and 256 more, and so does a report that one did not arrive.
    public var maximumPendingReceiveBytes: ByteLimit {
        get { configuration.maximumPendingReceiveBytes }
        set { configure { $0.maximumPendingReceiveBytes = newValue } }
    }

    /// How many bytes may wait to be sent; 4 MiB by default. Each datagram counts with its bytes and 64 more.
    /// One that would exceed it fails with `.writeQueueFull`; one alone is never too much.
    public var maximumPendingSendBytes: ByteLimit {
        get { configuration.maximumPendingSendBytes }
        set { configure { $0.maximumPendingSendBytes = newValue } }
    }

    /// The number of bytes waiting to be sent, more than zero, at which the delegate gets
    /// `udpSocket(_:sendQueueReachedHighWater:)`; it gets `udpSocket(_:sendQueueReachedLowWater:)` once no
    /// more than half of that waits. Nil (the default): never.
    public var sendHighWaterMark: Int? {
        get { configuration.sendHighWaterMark }
        set { configure { $0.sendHighWaterMark = newValue } }
    }

    /// How many datagrams to take from each source and in all; others are dropped, and counted in
    /// `rateLimitedCount`. Nil (the default): all. A change forgets what was counted.
    ///
    /// Set it on a server that answers strangers: a sender can forge its address, and have your answers sent
    /// to others.
    public var rateLimit: DatagramRateLimit? {
        get { configuration.rateLimit }
        set { configure { $0.rateLimit = newValue } }
    }

    /// The most bytes of a datagram that DTLS sends, without the headers of UDP and IP: at least 256. Nil
    /// (the default): what the kernel knows of the path to the peer. Set it before `startDTLS`, for a path
    /// that carries less and does not say so.
    ///
    /// The messages of the handshake are cut to this size, and without it to smaller ones when answers do not
    /// come. A message of the program is not cut: see `maximumSendSize`.
    public var maximumDatagramSize: Int? {
        get { configuration.maximumDatagramSize }
        set { configure { $0.maximumDatagramSize = newValue.map { max(DatagramLayer.leastDatagramSize, min($0, 65_507)) } } }
    }

    /// The logger of the socket. It logs binding, connecting, reports of losses and the end at the level
    /// `debug`, and drops of the kernel as warnings, one line a second at most; never the bytes.
    public var logger: Logger {
        get { configuration.logger ?? socketLog.withLock { $0 } }
        set { configure { $0.logger = newValue } }
    }

    /// The observer of the socket: see `AsyncSocket.observer`. A UDP socket begins when it is bound or
    /// connected, and ends when it is closed. Set it before that.
    public var observer: (any SocketObserver)? {
        get { configuration.observer }
        set { configure { $0.observer = newValue } }
    }

    /// A value of your own to keep with the socket. The socket does nothing with it.
    public var userData: (any Sendable)? {
        get { state.withLock { $0.userData } }
        set {
            // The old value may run code of the user's when it goes: not under the lock.
            _ = state.withLock { state in
                defer { state.userData = newValue }
                return state.userData
            }
        }
    }

    // MARK: - Inside

    var configuration: DatagramConfiguration {
        state.withLock { $0.configuration.value }
    }

    private func configure(_ change: (inout DatagramConfiguration) -> Void) {
        // The old one may hold the last reference to an object of the user's: not under the lock.
        let (configuration, old, connection) = state.withLock { state in
            let old = state.configuration
            change(&state.configuration.value)
            state.configuration.value.version += 1
            return (state.configuration, old, state.connection)
        }
        withExtendedLifetime(old) {}
        connection?.post(.configure(configuration))
    }

    /// Resolves host names: for tests that choose the addresses of a host.
    package var resolver: Resolver {
        get { configuration.resolver }
        set { configure { $0.resolver = newValue } }
    }

    /// When DTLS sends messages again for the first time: for tests on bad wires.
    package var firstRetransmission: Duration {
        get { configuration.firstRetransmission }
        set { configure { $0.firstRetransmission = newValue } }
    }

    /// Puts a socket that has not been used yet on a loop: for tests that look at the loop.
    package func stay(on loop: EventLoop) {
        state.withLock { $0.loop = loop }
    }
}

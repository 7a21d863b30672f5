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

    /// The preferred IP version for hosts that have both IPv4 and IPv6 addresses: `.ipv4`, `.ipv6`, or `nil`
    /// (the default) to use the order of the system's resolver (`setPreferIPv4`, `setPreferIPv6`,
    /// `setIPVersionNeutral`).
    public var preferredFamily: SocketEndpoint.Family? {
        get { configuration.preferredFamily }
        set { configure { $0.preferredFamily = newValue } }
    }

    /// The maximum number of bytes kept of each received datagram, from 1 to 65,527. Longer datagrams are
    /// truncated (`DatagramArrival.isTruncated`). The default of 65,527 never truncates. Set it before `bind`
    /// or `connect`.
    ///
    /// With a smaller value, such as 2,048, the kernel can return many datagrams in one system call.
    public var maximumReceiveSize: Int {
        get { configuration.maximumReceiveSize }
        set { configure { $0.maximumReceiveSize = newValue.clamped(to: 1...DatagramReceiver.largestSize) } }
    }

    /// Whether each datagram carries the time at which the kernel received it
    /// (`DatagramArrival.timeSince1970`). False by default. Set it before `bind` or `connect`.
    public var receivesTimestamps: Bool {
        get { configuration.receivesTimestamps }
        set { configure { $0.receivesTimestamps = newValue } }
    }

    /// The maximum amount of memory for datagrams not yet delivered to the delegate, in bytes; 1 MiB by
    /// default. Negative values are set to 0. Each datagram is charged its size plus 256 bytes, and each
    /// delivery failure report is charged 256 bytes.
    public var maximumPendingReceiveBytes: Int {
        get { configuration.maximumPendingReceiveBytes }
        set { configure { $0.maximumPendingReceiveBytes = newValue.clamped(to: 0...) } }
    }

    /// The maximum number of bytes queued for sending; 4 MiB by default. Negative values are set to 0. Each
    /// datagram is charged its size plus 64 bytes. A datagram that would exceed the limit fails with
    /// `.writeQueueFull`. An empty queue accepts any datagram.
    public var maximumPendingSendBytes: Int {
        get { configuration.maximumPendingSendBytes }
        set { configure { $0.maximumPendingSendBytes = newValue.clamped(to: 0...) } }
    }

    /// The number of queued bytes, greater than zero, at which the delegate receives
    /// `udpSocket(_:sendQueueReachedHighWater:)`. When the queue has drained to half of this value, the
    /// delegate receives `udpSocket(_:sendQueueReachedLowWater:)`. If `nil` (the default), neither is called.
    public var sendHighWaterMark: Int? {
        get { configuration.sendHighWaterMark }
        set { configure { $0.sendHighWaterMark = newValue?.clamped(to: 1...) } }
    }

    /// The maximum rate of received datagrams, per source and in total. If `nil` (the default), all datagrams
    /// are accepted. Datagrams above the limit are dropped and counted in `dropped`. Changing the limit
    /// discards the rates measured so far.
    ///
    /// Set a limit on servers that reply to strangers: senders can forge their address to direct your replies
    /// at a victim.
    public var rateLimit: SourceRateLimit? {
        get { configuration.rateLimit }
        set { configure { $0.rateLimit = newValue } }
    }

    /// The maximum size of the datagrams that DTLS sends, in bytes without UDP and IP headers, from 256 to
    /// 65,507.
    /// If `nil` (the default), the path MTU known to the kernel is used. Set a size if the kernel cannot
    /// detect that the path MTU is smaller, and set it before `startDTLS`.
    ///
    /// Handshake messages are fragmented to this size. If the size is `nil`, they are retransmitted in
    /// smaller fragments when the peer does not reply. The program's own messages are never fragmented: see
    /// `maximumSendSize`.
    public var maximumDatagramSize: Int? {
        get { configuration.maximumDatagramSize }
        set { configure { $0.maximumDatagramSize = newValue?.clamped(to: DatagramLayer.leastDatagramSize...65_507) } }
    }

    /// Whether a DTLS handshake fails when the network reports (ICMP) that a datagram was not delivered, for
    /// example because no program uses the peer's port. The default is `false`: any host on the path can
    /// forge such a report, so the handshake continues until `TLSSettings.handshakeTimeout`. The timeout
    /// error then gives the number of reports and the last one. On networks that you trust, set this property
    /// to `true` before calling `startDTLS`.
    public var failsHandshakeOnDeliveryFailure: Bool {
        get { configuration.failsHandshakeOnDeliveryFailure }
        set { configure { $0.failsHandshakeOnDeliveryFailure = newValue } }
    }

    /// The socket's logger. Binding, connecting, loss reports and closing are logged at level `debug`, and
    /// datagrams dropped by the kernel at level `warning`, at most one line per second. Payloads are never
    /// logged.
    public var logger: Logger {
        get { configuration.logger ?? socketLog.withLock { $0 } }
        set { configure { $0.logger = newValue } }
    }

    /// The socket's observer: see `AsyncSocket.observer`. Observation of a UDP socket starts when the socket
    /// is bound or connected, and stops when it closes. Set the observer before observation starts.
    public var observer: (any SocketObserver)? {
        get { configuration.observer }
        set { configure { $0.observer = newValue } }
    }

    /// A custom value to keep with the socket. The socket does not use it.
    public var userData: (any Sendable)? {
        get { state.withLock { $0.userData } }
        set {
            // Releasing the old value may run user code, so it must not happen under the lock.
            _ = state.withLock { state in
                defer { state.userData = newValue }
                return state.userData
            }
        }
    }

    // MARK: - Implementation

    var configuration: DatagramConfiguration {
        state.withLock { $0.configuration.value }
    }

    private func configure(_ change: (inout DatagramConfiguration) -> Void) {
        // The old configuration may hold the last reference to a user's object, so release it outside the
        // lock.
        let (configuration, old, connection) = state.withLock { state in
            let old = state.configuration
            change(&state.configuration.value)
            state.configuration.value.version += 1
            return (state.configuration, old, state.connection)
        }
        withExtendedLifetime(old) {}
        connection?.post(.configure(configuration))
    }

    /// The resolver for host names. Tests replace it to choose the addresses of a host.
    package var resolver: Resolver {
        get { configuration.resolver }
        set { configure { $0.resolver = newValue } }
    }

    /// The first retransmission timeout of DTLS. Tests change it for lossy networks.
    package var firstRetransmission: Duration {
        get { configuration.firstRetransmission }
        set { configure { $0.firstRetransmission = newValue } }
    }

    /// The largest datagram that may be sent, or `nil` for the limit of UDP. Larger datagrams fail with
    /// EMSGSIZE.
    package var maximumSendLength: Int? {
        get { configuration.maximumSendLength }
        set { configure { $0.maximumSendLength = newValue } }
    }

    /// Assigns a loop to a socket that has not been used yet. For tests that inspect the loop.
    package func stay(on loop: SocketEventLoop) {
        state.withLock { $0.loop = loop }
    }
}

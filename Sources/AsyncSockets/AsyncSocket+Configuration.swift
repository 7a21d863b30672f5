internal import FoundationEssentials
public import Logging
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Whether IPv4 addresses are used for connecting and listening. Defaults to `true`. A change takes
    /// effect at the next `connect` or `accept`.
    public var isIPv4Enabled: Bool {
        get { configuration.isIPv4Enabled }
        set { configure { $0.isIPv4Enabled = newValue } }
    }

    /// Whether IPv6 addresses are used for connecting and listening. Defaults to `true`. A change takes
    /// effect at the next `connect` or `accept`.
    public var isIPv6Enabled: Bool {
        get { configuration.isIPv6Enabled }
        set { configure { $0.isIPv6Enabled = newValue } }
    }

    /// Whether IPv4 is tried first if a host has addresses of both families. Defaults to `true`, as in
    /// CocoaAsyncSocket. A change takes effect at the next `connect`.
    public var isIPv4PreferredOverIPv6: Bool {
        get { configuration.isIPv4PreferredOverIPv6 }
        set { configure { $0.isIPv4PreferredOverIPv6 = newValue } }
    }

    /// The time from the start of one connection attempt to the start of the next: the connection attempt
    /// delay of RFC 8305, section 5. Defaults to 0.3 seconds. If an attempt fails, the next one starts
    /// immediately. A change takes effect at the next `connect`.
    public var alternateAddressDelay: Duration {
        get { .seconds(attemptDelay) }
        set { attemptDelay = newValue.inSeconds }
    }

    /// `alternateAddressDelay` in seconds. Accepts any number, as `GCDAsyncSocket` does.
    package var attemptDelay: Double {
        get { configuration.alternateAddressDelay }
        set { configure { $0.alternateAddressDelay = newValue } }
    }

    /// The proxy that connects to hosts on the socket's behalf, or `nil` (the default) for a direct
    /// connection. A change takes effect at the next `connect`.
    ///
    /// With a proxy, `connect` connects to the proxy and requests a tunnel to the host. Once the tunnel is
    /// established, the delegate receives `socket(_:didConnectToHost:port:)` with the host as you wrote it.
    /// The proxy resolves the host; only the proxy's name is looked up locally. The timeout of `connect`
    /// covers all of these steps. `connectedAddress` is the address of the proxy. Reads, writes and
    /// `startTLS` work as they do without a proxy: bytes that follow the proxy's last reply are the first
    /// bytes from the peer. Unix-domain sockets and listeners ignore the proxy.
    ///
    /// If the proxy refuses the request, the attempt fails with `.proxyRefused` or
    /// `.proxyAuthenticationRequired`. If the proxy misbehaves, the attempt fails with `.proxyFailed`. The
    /// connection to the proxy is not encrypted: the proxy sees everything that you do not protect with
    /// `startTLS`, and your proxy credentials travel in plaintext.
    public var proxy: SocketProxy? {
        get { configuration.proxy }
        set { configure { $0.proxy = newValue } }
    }

    /// Whether the connection closes as soon as the peer has closed its side (with a FIN or, under TLS, a
    /// close_notify) and you have read all bytes received before that. Defaults to `true`, or to `false` on a
    /// socket that is used by tasks and has never had a delegate.
    ///
    /// If `false`, the delegate receives `socketDidCloseReadStream(_:)`, and you may continue writing until
    /// `disconnect()` or `closeWriteStream()`.
    public var autoDisconnectOnClosedReadStream: Bool {
        get { configuration.autoDisconnectOnClosedReadStream }
        set {
            configure {
                $0.autoDisconnectOnClosedReadStream = newValue
                $0.isServingTasks = false
            }
        }
    }

    /// Whether the connection stays open when a read times out. Only the read then fails, with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`. Defaults to `false`: the connection fails
    /// with `.readTimeout`. A write that times out always closes the connection, because the peer may have
    /// received part of the data.
    public var keepsConnectionOnReadTimeout: Bool {
        get { configuration.keepsConnectionOnReadTimeout }
        set { configure { $0.keepsConnectionOnReadTimeout = newValue } }
    }

    /// The maximum number of bytes in memory waiting to be written. Defaults to 64 MiB. Negative values are
    /// set to 0.
    ///
    /// Prevents a peer that does not read from filling the memory. A write that would exceed the limit closes
    /// the connection with `.writeQueueFull`, because dropping a single write would corrupt the stream. A
    /// larger write is accepted if the queue is empty. Files do not count. Beyond 1,024 queued writes, each
    /// counts about 80 bytes more than its data. Tasks are not limited, because a write suspends its task.
    public var maximumPendingWriteBytes: Int {
        get { configuration.maximumPendingWriteBytes }
        set { configure { $0.maximumPendingWriteBytes = newValue.clamped(to: 0...) } }
    }

    /// The number of queued bytes, greater than zero, at which the delegate receives
    /// `socket(_:writeQueueReachedHighWater:)`, or `nil` (the default) for no callbacks. Once at most half
    /// that number is queued, the delegate receives `socket(_:writeQueueReachedLowWater:)`. A task's write,
    /// except of a file, returns once fewer bytes than the mark are queued.
    public var writeHighWaterMark: Int? {
        get { configuration.writeHighWaterMark }
        set { configure { $0.writeHighWaterMark = newValue?.clamped(to: 1...) } }
    }

    /// The maximum rate of receiving, or `nil` (the default) for no limit. With TLS, encrypted bytes count,
    /// also during the handshake.
    ///
    /// Bytes over the limit stay in the kernel's receive buffer, however many reads are queued. When the
    /// buffer is full, the peer's writes are delayed. Before a TLS handshake and after a failed write, the
    /// connection receives up to 64 KiB regardless of the limit. Later reads are delayed to compensate.
    ///
    /// Timeouts include the delays. Choose an idle timeout during which the rate moves at least 64 KiB,
    /// because an idle timeout notices TLS data only in whole records: one when receiving, up to four when
    /// sending. Accepted sockets inherit the limit of their listener, and it applies to each connection
    /// separately. A change takes effect immediately. It brings no new burst, unless the limit was `nil`.
    ///
    /// ```swift
    /// socket.readRateLimit = ByteRate(bytesPerSecond: 1_000_000)
    /// ```
    public var readRateLimit: ByteRate? {
        get { configuration.readRateLimit }
        set { configure { $0.readRateLimit = newValue } }
    }

    /// The maximum rate of sending, or `nil` (the default) for no limit. Bytes over the limit stay in the
    /// write queue. When the connection closes, bytes that are already encrypted (usually not more than 64
    /// KiB) and the last replies of a dialogue are sent regardless of the limit. See `readRateLimit` for
    /// timeouts, accepted sockets and changes.
    public var writeRateLimit: ByteRate? {
        get { configuration.writeRateLimit }
        set { configure { $0.writeRateLimit = newValue } }
    }

    /// The socket's logger. Connecting, handshakes and closed connections are logged at the level `debug`. A
    /// listener's pauses and its first lost connection are logged as warnings. Data is never logged.
    ///
    /// The metadata of a message about a connection contains the connection's number, its role and, if known,
    /// its peer. Defaults to the library's logger, with the label "AsyncSockets" and the level of its
    /// `LogHandler`. Accepted sockets inherit the logger of their listener.
    public var logger: Logger {
        get { configuration.logger ?? socketLog.withLock { $0 } }
        set { configure { $0.logger = newValue } }
    }

    /// The observer of the socket, for metrics: it is notified of established and closed connections, of
    /// handshakes, and of a listener's pauses. Defaults to `nil`, which costs nothing.
    ///
    /// Set it before `connect` or `accept`. Accepted sockets inherit the observer of their listener; you may
    /// replace it in `socket(_:didAcceptNewSocket:)`. A connection keeps the observer that it started with.
    /// If you set an observer while an established connection has no observer (for example, an adopted
    /// connection), the observer is notified of the connection immediately, and the connection's bytes and
    /// duration are counted from then on. A listener keeps the observer that was set at `accept`. The socket
    /// holds its observer strongly. For the thread on which the observer is called, see `SocketObserver`.
    public var observer: (any SocketObserver)? {
        get { configuration.observer }
        set { configure { $0.observer = newValue } }
    }

    // MARK: - Internals

    var configuration: SocketConfiguration {
        state.withLock { $0.configuration.value }
    }

    func configure(_ change: (inout SocketConfiguration) -> Void) {
        // The old configuration may hold the last reference to a user's object, and its `deinit` must not run
        // under the lock.
        let (configuration, old) = state.withLock { state in
            let old = state.configuration
            change(&state.configuration.value)
            state.configuration.value.version += 1
            return (state.configuration, old)
        }
        withExtendedLifetime(old) {}
        connection?.post(.configure(configuration))
    }
}

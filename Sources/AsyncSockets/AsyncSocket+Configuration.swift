public import FoundationEssentials
public import Logging
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Whether to use IPv4 addresses, for connecting and for listening. True by default. A change takes
    /// effect at the next `connect` or `accept`.
    public var isIPv4Enabled: Bool {
        get { configuration.isIPv4Enabled }
        set { configure { $0.isIPv4Enabled = newValue } }
    }

    /// Whether to use IPv6 addresses, for connecting and for listening. True by default. A change takes
    /// effect at the next `connect` or `accept`.
    public var isIPv6Enabled: Bool {
        get { configuration.isIPv6Enabled }
        set { configure { $0.isIPv6Enabled = newValue } }
    }

    /// Whether to try IPv4 first when a host has addresses of both families. True by default, as in
    /// CocoaAsyncSocket. A change takes effect at the next `connect`.
    public var isIPv4PreferredOverIPv6: Bool {
        get { configuration.isIPv4PreferredOverIPv6 }
        set { configure { $0.isIPv4PreferredOverIPv6 = newValue } }
    }

    /// Seconds from the start of one attempt to connect to the start of the next: the connection attempt
    /// delay of RFC 8305, section 5. The default is 0.3. When an attempt fails, the next one starts at once.
    /// A change takes effect at the next `connect`.
    public var alternateAddressDelay: TimeInterval {
        get { configuration.alternateAddressDelay }
        set { configure { $0.alternateAddressDelay = newValue } }
    }

    /// The proxy that connects to hosts on the socket's behalf; nil (the default): none. A change takes
    /// effect at the next `connect`.
    ///
    /// With a proxy, `connect` connects to the proxy and asks it for the host. Once the tunnel is
    /// established, the delegate gets `socket(_:didConnectToHost:port:)` with the host as you wrote it. The
    /// proxy resolves the host; only the proxy's own name is looked up here. The timeout of `connect` covers
    /// all of it. `connectedAddress` is the proxy's. Reads, writes and `startTLS` work as without a proxy:
    /// what the proxy sends after its last reply is what the peer sent first. Unix-domain sockets and
    /// listeners ignore the proxy.
    ///
    /// A proxy that refuses ends the attempt with `.proxyRefused` or `.proxyAuthenticationRequired`, one that
    /// misbehaves with `.proxyFailed`. Nothing is encrypted on the way to the proxy: it sees what you do not
    /// protect with `startTLS`, and your credentials for it travel in plaintext.
    public var proxy: Proxy? {
        get { configuration.proxy }
        set { configure { $0.proxy = newValue } }
    }

    /// Whether the connection ends as soon as the peer has closed its side (a FIN or, with TLS, a
    /// close_notify) and you have read the bytes before that. True by default; false as
    /// long as a socket is used by tasks and no delegate was ever set.
    ///
    /// When false, the delegate gets `socketDidCloseReadStream(_:)`, and you may go on writing until
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

    /// Whether the connection goes on when a read times out: then only the read ends, with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`. False by default: the connection ends with
    /// `.readTimeout`. A write that times out always ends the connection, since the peer may have a part of
    /// it.
    public var keepsConnectionOnReadTimeout: Bool {
        get { configuration.keepsConnectionOnReadTimeout }
        set { configure { $0.keepsConnectionOnReadTimeout = newValue } }
    }

    /// How many bytes may wait in memory to be written; 64 MiB by default.
    ///
    /// It keeps a peer that does not read from filling the memory. A write that would exceed it ends the
    /// connection with `.writeQueueFull`: to leave out that one write would corrupt the stream. A larger
    /// write is accepted when no other write waits. Files do not count. After the first 1,024 waiting writes,
    /// each one counts about 80 bytes more than its data. `writeHighWaterMark` warns you earlier.
    public var maximumPendingWriteBytes: ByteLimit {
        get { configuration.maximumPendingWriteBytes }
        set { configure { $0.maximumPendingWriteBytes = newValue } }
    }

    /// The number of bytes waiting to be written, more than zero, at which the delegate gets
    /// `socket(_:writeQueueReachedHighWater:)`; it gets `socket(_:writeQueueReachedLowWater:)` once no more
    /// than half of that waits. Nil (the default): never.
    public var writeHighWaterMark: Int? {
        get { configuration.writeHighWaterMark }
        set { configure { $0.writeHighWaterMark = newValue } }
    }

    /// The logger of the socket. It logs connecting, handshakes and ends at the level `debug`, and a
    /// listener's pauses and its first lost connection as warnings; never the bytes.
    ///
    /// Each line of a connection has its number, its role and, where it is known, the peer as metadata. The
    /// default is the library's logger, with the label "AsyncSockets" and the level of its `LogHandler`.
    /// Accepted sockets have their listener's.
    public var logger: Logger {
        get { configuration.logger ?? socketLog.withLock { $0 } }
        set { configure { $0.logger = newValue } }
    }

    /// The observer of the socket, which learns how its connections begin and end, how handshakes go, and
    /// when a listener pauses: for metrics. Nil (the default): none, at no cost.
    ///
    /// Set it before `connect` or `accept`. Accepted sockets have their listener's; you may set another in
    /// `socket(_:didAcceptNewSocket:)`. A connection keeps the observer with which it began. One that is
    /// established and has none, such as an adopted one, begins for the new observer now, and its bytes and
    /// its seconds count from now. A listener keeps the observer that it had at `accept`. The socket holds
    /// its observer; `SocketObserver` says on which thread it is called.
    public var observer: (any SocketObserver)? {
        get { configuration.observer }
        set { configure { $0.observer = newValue } }
    }

    // MARK: - Inside

    var configuration: SocketConfiguration {
        state.withLock { $0.configuration.value }
    }

    /// Changes the configuration of the socket and of its connection.
    func configure(_ change: (inout SocketConfiguration) -> Void) {
        // The old one may hold the last reference to an object of the user's, which runs code when it goes:
        // not under the lock.
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

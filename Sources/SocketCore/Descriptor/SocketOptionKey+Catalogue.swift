internal import CLinux
internal import Glibc

private let tcp = CInt(IPPROTO_TCP)
private let ipv4 = CInt(IPPROTO_IP)
private let ipv6 = CInt(IPPROTO_IPV6)

extension SocketOptionKey where Value == Bool {
    /// Whether small writes are sent immediately, without waiting for acknowledgements (`TCP_NODELAY`,
    /// tcp(7)). TCP only.
    ///
    /// Enabled unless you set it to `false`, because queued writes are coalesced anyway.
    public static var noDelay: SocketOptionKey { .flag("TCP_NODELAY", tcp, TCP_NODELAY) }

    /// Whether the kernel probes a silent peer (`SO_KEEPALIVE`, socket(7)). If the peer does not respond,
    /// the connection fails with `ETIMEDOUT`.
    ///
    /// Off by default. `keepAliveIdle`, `keepAliveInterval` and `keepAliveCount` control the timing. TCP
    /// only; has no effect on other sockets.
    public static var keepAlive: SocketOptionKey { .flag("SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE) }

    /// Whether a local address may be bound while earlier connections are still in `TIME_WAIT`
    /// (`SO_REUSEADDR`, socket(7)). Set it before the socket is bound.
    ///
    /// Enabled for listeners unless you set it to `false`. With UDP, where it is off by default, it allows
    /// several sockets to bind the same port. Each of them receives all multicast datagrams, and the most
    /// recently bound socket receives all other datagrams.
    public static var reuseAddress: SocketOptionKey { .flag("SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, scope: .unbound) }

    /// Whether several sockets may bind the same address and port (`SO_REUSEPORT`, socket(7)). The kernel
    /// distributes connections, or datagrams by sender, among the sockets.
    ///
    /// Off by default. Every socket must set it before it is bound, and all must belong to the same user.
    /// For listeners, TCP only.
    public static var reusePort: SocketOptionKey { .flag("SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, scope: .unbound) }

    /// Whether received data is acknowledged immediately (`TCP_QUICKACK`, tcp(7)). TCP only.
    ///
    /// The kernel changes this option automatically during a connection, so set it again whenever it
    /// matters.
    public static var quickAck: SocketOptionKey { .flag("TCP_QUICKACK", tcp, TCP_QUICKACK) }
}

extension SocketOptionKey where Value == Duration {
    /// The idle time before the first keep-alive probe (`TCP_KEEPIDLE`, tcp(7)). Whole seconds
    /// from 1 to 32767; fractions are rounded up. TCP only.
    public static var keepAliveIdle: SocketOptionKey { .time("TCP_KEEPIDLE", tcp, TCP_KEEPIDLE, unitsPerSecond: 1) }

    /// The time between keep-alive probes (`TCP_KEEPINTVL`, tcp(7)). Whole seconds from 1 to
    /// 32767; fractions are rounded up. TCP only.
    public static var keepAliveInterval: SocketOptionKey { .time("TCP_KEEPINTVL", tcp, TCP_KEEPINTVL, unitsPerSecond: 1) }

    /// How long sent data may remain unacknowledged before the connection fails with `ETIMEDOUT`
    /// (`TCP_USER_TIMEOUT`, tcp(7), RFC 5482). TCP only.
    ///
    /// The resolution is one millisecond; fractions are rounded up. Zero, the default, selects the system's
    /// limit, usually about 15 minutes.
    public static var userTimeout: SocketOptionKey { .time("TCP_USER_TIMEOUT", tcp, TCP_USER_TIMEOUT, unitsPerSecond: 1000) }
}

extension SocketOptionKey where Value == Duration? {
    /// How unsent data is treated when the socket is closed (`SO_LINGER`, socket(7)).
    ///
    /// With `nil`, the default, the kernel continues to send the data. With `.zero`, it drops the data and
    /// resets the connection. Any other value is rejected with `EINVAL`, because close(2) would block the
    /// event loop. Use `disconnectAfterWriting()` instead.
    public static var linger: SocketOptionKey { .resetting("SO_LINGER", SOL_SOCKET, SO_LINGER) }
}

extension SocketOptionKey where Value == Int {
    /// How many keep-alive probes may remain unanswered before the connection fails, from 1 to 127
    /// (`TCP_KEEPCNT`, tcp(7)). TCP only.
    public static var keepAliveCount: SocketOptionKey { .number("TCP_KEEPCNT", .tcp(TCP_KEEPCNT)) }

    /// The size of the kernel's receive buffer in bytes (`SO_RCVBUF`, socket(7)). Set it before connecting
    /// or listening, because the TCP window scale is fixed in the handshake.
    ///
    /// Linux doubles the number to make room for its own bookkeeping, and returns the doubled value.
    /// `net.core.rmem_max` is the upper limit. Setting it disables the kernel's automatic tuning.
    public static var receiveBufferSize: SocketOptionKey { .number("SO_RCVBUF", .socket(SO_RCVBUF)) }

    /// The size of the kernel's send buffer in bytes (`SO_SNDBUF`, socket(7)).
    ///
    /// Linux doubles the number to make room for its own bookkeeping, and returns the doubled value.
    /// `net.core.wmem_max` is the upper limit. Setting it disables the kernel's automatic tuning.
    public static var sendBufferSize: SocketOptionKey { .number("SO_SNDBUF", .socket(SO_SNDBUF)) }

    /// The maximum number of hops for a packet, from 1 to 255 (`IP_TTL`, ip(7); on IPv6 `IPV6_UNICAST_HOPS`,
    /// ipv6(7)). -1 selects the system's default. IP only.
    public static var ipTTL: SocketOptionKey {
        .number("IP_TTL", .byFamily(ipv4: Key(ipv4, IP_TTL), ipv6: Key(ipv6, IPV6_UNICAST_HOPS)))
    }

    /// The traffic class of each packet, from 0 to 255 (`IP_TOS`, ip(7); on IPv6 `IPV6_TCLASS`, ipv6(7); RFC
    /// 2474). The upper six bits are the DSCP and the lower two bits are ECN. With TCP, the kernel controls
    /// the ECN bits. IP only.
    public static var trafficClass: SocketOptionKey {
        .number("IP_TOS", .byFamily(ipv4: Key(ipv4, IP_TOS), ipv6: Key(ipv6, IPV6_TCLASS)))
    }

    /// The mark used by routing and firewall rules (`SO_MARK`, socket(7)). Set it before connecting, so that
    /// it affects the route.
    ///
    /// Requires `CAP_NET_ADMIN` or `CAP_NET_RAW`; otherwise it fails with `EPERM`.
    public static var mark: SocketOptionKey { .number("SO_MARK", .socket(SO_MARK)) }

    /// The priority in the device's queue, from 0 to 6 (`SO_PRIORITY`, socket(7)). Higher values require
    /// `CAP_NET_ADMIN`. On IPv4, setting `trafficClass` also changes the priority.
    public static var priority: SocketOptionKey { .number("SO_PRIORITY", .socket(SO_PRIORITY)) }

    /// The limit on unsent bytes in the kernel, above which the socket is not writable (`TCP_NOTSENT_LOWAT`,
    /// tcp(7)). A small limit prevents the latest write from queueing behind much older data. TCP only.
    public static var notSentLowWater: SocketOptionKey { .number("TCP_NOTSENT_LOWAT", .tcp(TCP_NOTSENT_LOWAT)) }

    /// The maximum number of bytes in a segment, from 88 to 32767 (`TCP_MAXSEG`, tcp(7)). Set it before
    /// connecting or listening. Once connected, it is the current segment size. TCP only.
    public static var maximumSegmentSize: SocketOptionKey { .number("TCP_MAXSEG", .tcp(TCP_MAXSEG)) }

    /// The maximum number of pending TCP Fast Open connections of a listener (`TCP_FASTOPEN`, tcp(7), RFC
    /// 7413). Fast Open connections carry data in their first packet. TCP only.
    ///
    /// 0 disables Fast Open. The system must also allow it (`net.ipv4.tcp_fastopen`, value 2). For listeners
    /// only, before or after they start; not for connections.
    public static var fastOpenQueueLength: SocketOptionKey { .number("TCP_FASTOPEN", .tcp(TCP_FASTOPEN), scope: .unbound) }
}

extension SocketOptionKey where Value == String {
    /// The congestion control algorithm, such as `cubic` or `bbr` (`TCP_CONGESTION`, tcp(7)). TCP only.
    ///
    /// Unprivileged processes may use the algorithms in `/proc/sys/net/ipv4/tcp_allowed_congestion_control`.
    /// Other algorithms fail with `EPERM`, unknown algorithms with `ENOENT`.
    public static var congestionControl: SocketOptionKey { .text("TCP_CONGESTION", tcp, TCP_CONGESTION, limit: 16) }

    /// The network device that packets are restricted to, such as `eth0` (`SO_BINDTODEVICE`, socket(7)). An
    /// empty string means any device. Set it before connecting or listening.
    ///
    /// Changing it requires `CAP_NET_RAW`. An unknown device fails with `ENODEV`.
    public static var bindToDevice: SocketOptionKey { .text("SO_BINDTODEVICE", SOL_SOCKET, SO_BINDTODEVICE, limit: 16) }
}

extension SocketOptionKey.Keys {
    fileprivate static func socket(_ option: CInt) -> Self { .one(.init(SOL_SOCKET, option)) }
    fileprivate static func tcp(_ option: CInt) -> Self { .one(.init(CInt(IPPROTO_TCP), option)) }
}

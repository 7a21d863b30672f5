internal import CLinux
public import FoundationEssentials
internal import Glibc

private let tcp = CInt(IPPROTO_TCP)
private let ipv4 = CInt(IPPROTO_IP)
private let ipv6 = CInt(IPPROTO_IPV6)

extension SocketOption where Value == Bool {
    /// Small writes leave at once and wait for no acknowledgement (`TCP_NODELAY`, tcp(7)). TCP only. It is on
    /// unless you set it to false, since queued writes are put together anyway.
    public static var noDelay: SocketOption { .flag("TCP_NODELAY", tcp, TCP_NODELAY) }

    /// The kernel asks a silent peer now and then whether it is still there (`SO_KEEPALIVE`, socket(7)), and
    /// the connection ends with `ETIMEDOUT` when it is not. Off at first. `keepAliveIdle`,
    /// `keepAliveInterval` and `keepAliveCount` say how often. TCP only; elsewhere it does nothing.
    public static var keepAlive: SocketOption { .flag("SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE) }

    /// A local address may be bound though connections of it are still in `TIME_WAIT` (`SO_REUSEADDR`,
    /// socket(7)). A listener has it on unless you set it to false. With UDP it lets several sockets bind one
    /// port: each hears all multicast datagrams, and the one that was bound last gets the others; off at
    /// first. Set it before the socket is bound.
    public static var reuseAddress: SocketOption { .flag("SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, scope: .unbound) }

    /// Several sockets may listen on one address and port, and the kernel distributes the connections, or the
    /// datagrams by their senders, among them (`SO_REUSEPORT`, socket(7)). Each must set it before it is
    /// bound, and all must belong to one user. Off at first. TCP only for listeners.
    public static var reusePort: SocketOption { .flag("SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, scope: .unbound) }

    /// Received bytes are acknowledged at once (`TCP_QUICKACK`, tcp(7)). The kernel changes it by itself
    /// during a connection: set it again when it matters. TCP only.
    public static var quickAck: SocketOption { .flag("TCP_QUICKACK", tcp, TCP_QUICKACK) }
}

extension SocketOption where Value == TimeInterval {
    /// The seconds of silence before the first keep-alive probe (`TCP_KEEPIDLE`, tcp(7)): whole seconds, 1 to
    /// 32767; fractions are rounded up. TCP only.
    public static var keepAliveIdle: SocketOption { .time("TCP_KEEPIDLE", tcp, TCP_KEEPIDLE, unitsPerSecond: 1) }

    /// The seconds between two keep-alive probes (`TCP_KEEPINTVL`, tcp(7)): whole seconds, 1 to 32767;
    /// fractions are rounded up. TCP only.
    public static var keepAliveInterval: SocketOption { .time("TCP_KEEPINTVL", tcp, TCP_KEEPINTVL, unitsPerSecond: 1) }

    /// The seconds for which sent bytes may stay unacknowledged before the connection ends with `ETIMEDOUT`
    /// (`TCP_USER_TIMEOUT`, tcp(7), RFC 5482), in milliseconds; fractions are rounded up. 0, the first value,
    /// is the system's default, usually some 15 minutes. TCP only.
    public static var userTimeout: SocketOption { .time("TCP_USER_TIMEOUT", tcp, TCP_USER_TIMEOUT, unitsPerSecond: 1000) }
}

extension SocketOption where Value == TimeInterval? {
    /// How closing treats bytes that are not sent yet (`SO_LINGER`, socket(7)). With nil, the first value,
    /// the kernel goes on sending them. With 0 it drops them and resets the connection. Anything else is
    /// refused with `EINVAL`, since close(2) would hold up the event loop: use `disconnectAfterWriting()`.
    public static var linger: SocketOption { .resetting("SO_LINGER", SOL_SOCKET, SO_LINGER) }
}

extension SocketOption where Value == Int {
    /// How many keep-alive probes may go unanswered, 1 to 127 (`TCP_KEEPCNT`, tcp(7)). TCP only.
    public static var keepAliveCount: SocketOption { .number("TCP_KEEPCNT", .tcp(TCP_KEEPCNT)) }

    /// The bytes that may wait in the kernel to be read (`SO_RCVBUF`, socket(7)). Linux doubles the number to
    /// have room for its own records, and returns the double; `net.core.rmem_max` bounds it. Setting it ends
    /// the kernel's own tuning. Set it before connecting or listening, since the handshake decides the TCP
    /// window scale.
    public static var receiveBufferSize: SocketOption { .number("SO_RCVBUF", .socket(SO_RCVBUF)) }

    /// The bytes that may wait in the kernel to be sent (`SO_SNDBUF`, socket(7)). Linux doubles the number to
    /// have room for its own records, and returns the double; `net.core.wmem_max` bounds it. Setting it ends
    /// the kernel's own tuning.
    public static var sendBufferSize: SocketOption { .number("SO_SNDBUF", .socket(SO_SNDBUF)) }

    /// How many routers a packet may pass, 1 to 255 (`IP_TTL`, ip(7); on IPv6 `IPV6_UNICAST_HOPS`, ipv6(7));
    /// -1: the system's default. IP only.
    public static var ipTTL: SocketOption {
        .number("IP_TTL", .byFamily(ipv4: Key(ipv4, IP_TTL), ipv6: Key(ipv6, IPV6_UNICAST_HOPS)))
    }

    /// The DSCP in the upper six bits and ECN in the lower two of each packet (`IP_TOS`, ip(7); on IPv6
    /// `IPV6_TCLASS`, ipv6(7); RFC 2474), 0 to 255. With TCP the kernel keeps the ECN bits to itself. IP
    /// only.
    public static var trafficClass: SocketOption {
        .number("IP_TOS", .byFamily(ipv4: Key(ipv4, IP_TOS), ipv6: Key(ipv6, IPV6_TCLASS)))
    }

    /// The mark that routing and firewall rules see (`SO_MARK`, socket(7)). Needs `CAP_NET_ADMIN` (or
    /// `CAP_NET_RAW`), otherwise `EPERM`. Set it before connecting, so that the route respects it.
    public static var mark: SocketOption { .number("SO_MARK", .socket(SO_MARK)) }

    /// The priority in the device's queue, 0 to 6 (`SO_PRIORITY`, socket(7)); more needs `CAP_NET_ADMIN`.
    /// Setting `trafficClass` on IPv4 changes it too.
    public static var priority: SocketOption { .number("SO_PRIORITY", .socket(SO_PRIORITY)) }

    /// The bytes that may wait unsent before the kernel says that there is no room (`TCP_NOTSENT_LOWAT`,
    /// tcp(7)). With a small number the last write does not wait behind much older ones. TCP only.
    public static var notSentLowWater: SocketOption { .number("TCP_NOTSENT_LOWAT", .tcp(TCP_NOTSENT_LOWAT)) }

    /// The most bytes that a segment may carry, 88 to 32767 (`TCP_MAXSEG`, tcp(7)). Set it before connecting
    /// or listening; on a connection it is the size in use. TCP only.
    public static var maximumSegmentSize: SocketOption { .number("TCP_MAXSEG", .tcp(TCP_MAXSEG)) }

    /// How many connections with data in their first packet may wait at a listener (`TCP_FASTOPEN`, tcp(7),
    /// RFC 7413); 0: none. The system has to allow it too (`net.ipv4.tcp_fastopen`, value 2). For listeners,
    /// before or after they begin; not for connections. TCP only.
    public static var fastOpenQueueLength: SocketOption { .number("TCP_FASTOPEN", .tcp(TCP_FASTOPEN), scope: .unbound) }
}

extension SocketOption where Value == String {
    /// The congestion control, such as `cubic` or `bbr` (`TCP_CONGESTION`, tcp(7)). Everyone may use those in
    /// `/proc/sys/net/ipv4/tcp_allowed_congestion_control`; others fail with `EPERM`, unknown ones with
    /// `ENOENT`. TCP only.
    public static var congestionControl: SocketOption { .text("TCP_CONGESTION", tcp, TCP_CONGESTION, limit: 16) }

    /// The one network device that packets may use, such as `eth0`; empty: any (`SO_BINDTODEVICE`,
    /// socket(7)). Changing it needs `CAP_NET_RAW`; an unknown device fails with `ENODEV`. Set it before
    /// connecting or listening.
    public static var bindToDevice: SocketOption { .text("SO_BINDTODEVICE", SOL_SOCKET, SO_BINDTODEVICE, limit: 16) }
}

extension SocketOption.Keys {
    fileprivate static func socket(_ option: CInt) -> Self { .one(.init(SOL_SOCKET, option)) }
    fileprivate static func tcp(_ option: CInt) -> Self { .one(.init(CInt(IPPROTO_TCP), option)) }
}

internal import CLinux
internal import Glibc

private let ipv4 = CInt(IPPROTO_IP)
private let ipv6 = CInt(IPPROTO_IPV6)

/// How the kernel treats a datagram that is larger than the path MTU (`IP_MTU_DISCOVER`, ip(7); on IPv6
/// `IPV6_MTU_DISCOVER`, ipv6(7); RFC 1191, RFC 8201).
public enum PathMTUDiscovery: Int, Sendable, Hashable {
    /// The kernel fragments the datagram to fit the interface, and routers may fragment it again.
    case never = 0
    /// The kernel fragments the datagram to fit the known path MTU. Usually the system default.
    case fragmenting = 1
    /// The kernel never fragments. A datagram that is larger than the path MTU fails with `EMSGSIZE`.
    case always = 2
    /// The kernel never fragments and ignores the known path MTU. For programs that probe the path MTU
    /// themselves.
    case probing = 3
}

extension SocketOptionKey where Value == Bool {
    /// Whether datagrams may be sent to a broadcast address (`SO_BROADCAST`, socket(7)). If off, such sends
    /// fail with `EACCES`. Off by default. IPv4 only.
    public static var broadcast: SocketOptionKey { .flag("SO_BROADCAST", SOL_SOCKET, SO_BROADCAST) }

    /// Whether a datagram sent to a multicast group is also delivered to sockets on this machine that
    /// joined the group (`IP_MULTICAST_LOOP`, ip(7); on IPv6 `IPV6_MULTICAST_LOOP`, ipv6(7)). On by
    /// default. IP only.
    public static var multicastLoopback: SocketOptionKey {
        .flag("IP_MULTICAST_LOOP", .byFamily(ipv4: Key(ipv4, IP_MULTICAST_LOOP), ipv6: Key(ipv6, IPV6_MULTICAST_LOOP)))
    }

    // Metadata that UDP sockets request for each datagram: see `DatagramDescriptor.prepareReception(_:)`.

    /// The local address and the interface.
    static var receivesPacketInfo: SocketOptionKey {
        .flag("IP_PKTINFO", .byFamily(ipv4: Key(ipv4, IP_PKTINFO), ipv6: Key(ipv6, IPV6_RECVPKTINFO)))
    }

    /// DSCP and ECN.
    static var receivesTrafficClass: SocketOptionKey {
        .flag("IP_RECVTOS", .byFamily(ipv4: Key(ipv4, IP_RECVTOS), ipv6: Key(ipv6, IPV6_RECVTCLASS)))
    }

    /// Queues errors caused by sent datagrams (`MSG_ERRQUEUE`).
    static var receivesErrors: SocketOptionKey {
        .flag("IP_RECVERR", .byFamily(ipv4: Key(ipv4, IP_RECVERR), ipv6: Key(ipv6, IPV6_RECVERR)))
    }

    /// Also receives datagrams for groups that only other sockets on this machine have joined.
    static var hearsAllGroups: SocketOptionKey {
        .flag("IP_MULTICAST_ALL", .byFamily(ipv4: Key(ipv4, IP_MULTICAST_ALL), ipv6: Key(ipv6, IPV6_MULTICAST_ALL)))
    }

    static var receivesDropCount: SocketOptionKey { .flag("SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL) }
    static var receivesTimestamps: SocketOptionKey { .flag("SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS) }
    static var coalescesDatagrams: SocketOptionKey { .flag("UDP_GRO", CInt(SOL_UDP), UDP_GRO) }
    static var isForIPv6Only: SocketOptionKey { .flag("IPV6_V6ONLY", ipv6, IPV6_V6ONLY, scope: .unbound) }
}

extension SocketOptionKey where Value == Int {
    /// The TTL or hop limit of multicast datagrams, from 0 to 255 (`IP_MULTICAST_TTL`, ip(7); on IPv6
    /// `IPV6_MULTICAST_HOPS`, ipv6(7)). The default of 1 keeps datagrams on the local link. With 0, they
    /// stay on this machine, but only on interfaces where a local socket has joined the group. IP only.
    public static var multicastTTL: SocketOptionKey {
        .number("IP_MULTICAST_TTL", .byFamily(ipv4: Key(ipv4, IP_MULTICAST_TTL), ipv6: Key(ipv6, IPV6_MULTICAST_HOPS)))
    }

    /// The path MTU to the peer of a connected socket, as currently known to the kernel (`IP_MTU`, ip(7)).
    /// Read-only.
    static var pathMTU: SocketOptionKey {
        .number("IP_MTU", .byFamily(ipv4: Key(ipv4, IP_MTU), ipv6: Key(ipv6, IPV6_MTU)))
    }

    /// The segment size into which the kernel splits a send (UDP GSO). 0 disables splitting.
    static var segmentSize: SocketOptionKey { .number("UDP_SEGMENT", .one(Key(CInt(SOL_UDP), UDP_SEGMENT))) }
}

extension SocketOptionKey where Value == PathMTUDiscovery {
    /// How the kernel treats datagrams that are larger than the path MTU (`IP_MTU_DISCOVER`, ip(7); on IPv6
    /// `IPV6_MTU_DISCOVER`, ipv6(7)). The system sets the default (`net.ipv4.ip_no_pmtu_disc`). IP only.
    public static var pathMTUDiscovery: SocketOptionKey {
        let keys = Keys.byFamily(ipv4: Key(ipv4, IP_MTU_DISCOVER), ipv6: Key(ipv6, IPV6_MTU_DISCOVER))
        return SocketOptionKey("IP_MTU_DISCOVER", keys) {
            CInt($0.rawValue).kernelBytes
        } decode: {
            CInt(kernelBytes: $0).flatMap { PathMTUDiscovery(rawValue: Int($0)) }
        }
    }
}

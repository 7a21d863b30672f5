internal import CLinux
internal import Glibc

private let ipv4 = CInt(IPPROTO_IP)
private let ipv6 = CInt(IPPROTO_IPV6)

/// How the kernel treats a datagram that is larger than the path to its destination carries
/// (`IP_MTU_DISCOVER`, ip(7); on IPv6 `IPV6_MTU_DISCOVER`, ipv6(7); RFC 1191, RFC 8201).
public enum PathMTUDiscovery: Int, Sendable, Hashable {
    /// It is cut into fragments as it leaves, and routers may cut it again.
    case never = 0
    /// It is cut into fragments that fit what the kernel knows of the path. The system's default, usually.
    case fragmenting = 1
    /// Nothing is cut: a datagram that is too large for the path fails with `EMSGSIZE`.
    case always = 2
    /// Nothing is cut, and the kernel ignores what it knows of the path: for programs that probe it.
    case probing = 3
}

extension SocketOption where Value == Bool {
    /// Datagrams may be sent to a broadcast address, which fails with `EACCES` otherwise (`SO_BROADCAST`,
    /// socket(7)). Off at first. IPv4 only.
    public static var broadcast: SocketOption { .flag("SO_BROADCAST", SOL_SOCKET, SO_BROADCAST) }

    /// A datagram to a multicast group also reaches the sockets of this machine that have joined the group
    /// (`IP_MULTICAST_LOOP`, ip(7); on IPv6 `IPV6_MULTICAST_LOOP`, ipv6(7)). On at first. IP only.
    public static var multicastLoopback: SocketOption {
        .flag("IP_MULTICAST_LOOP", .byFamily(ipv4: Key(ipv4, IP_MULTICAST_LOOP), ipv6: Key(ipv6, IPV6_MULTICAST_LOOP)))
    }

    // The facts of each datagram that a UDP socket asks for: `DatagramDescriptor.prepareReception(_:)`.

    /// The local address and the interface.
    static var receivesPacketInfo: SocketOption {
        .flag("IP_PKTINFO", .byFamily(ipv4: Key(ipv4, IP_PKTINFO), ipv6: Key(ipv6, IPV6_RECVPKTINFO)))
    }

    /// DSCP and ECN.
    static var receivesTrafficClass: SocketOption {
        .flag("IP_RECVTOS", .byFamily(ipv4: Key(ipv4, IP_RECVTOS), ipv6: Key(ipv6, IPV6_RECVTCLASS)))
    }

    /// Errors of datagrams that were sent, in a queue (`MSG_ERRQUEUE`).
    static var receivesErrors: SocketOption {
        .flag("IP_RECVERR", .byFamily(ipv4: Key(ipv4, IP_RECVERR), ipv6: Key(ipv6, IPV6_RECVERR)))
    }

    /// Also the groups that other sockets of this machine have joined.
    static var hearsAllGroups: SocketOption {
        .flag("IP_MULTICAST_ALL", .byFamily(ipv4: Key(ipv4, IP_MULTICAST_ALL), ipv6: Key(ipv6, IPV6_MULTICAST_ALL)))
    }

    static var receivesDropCount: SocketOption { .flag("SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL) }
    static var receivesTimestamps: SocketOption { .flag("SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS) }
    static var coalescesDatagrams: SocketOption { .flag("UDP_GRO", CInt(SOL_UDP), UDP_GRO) }
    static var isForIPv6Only: SocketOption { .flag("IPV6_V6ONLY", ipv6, IPV6_V6ONLY, scope: .unbound) }
}

extension SocketOption where Value == Int {
    /// How many routers a multicast datagram may pass, 0 to 255 (`IP_MULTICAST_TTL`, ip(7); on IPv6
    /// `IPV6_MULTICAST_HOPS`, ipv6(7)). 1, the first value, keeps it on its link. With 0 it does not leave
    /// this machine, but only on an interface where a socket of this machine has joined the group. IP only.
    public static var multicastTTL: SocketOption {
        .number("IP_MULTICAST_TTL", .byFamily(ipv4: Key(ipv4, IP_MULTICAST_TTL), ipv6: Key(ipv6, IPV6_MULTICAST_HOPS)))
    }

    /// The largest IP packet that the path to the peer of a connected socket carries, as far as the kernel
    /// knows (`IP_MTU`, ip(7)). It cannot be set.
    static var pathMTU: SocketOption {
        .number("IP_MTU", .byFamily(ipv4: Key(ipv4, IP_MTU), ipv6: Key(ipv6, IPV6_MTU)))
    }

    /// The size of the segments that a send is cut into (UDP GSO); 0: it is not cut.
    static var segmentSize: SocketOption { .number("UDP_SEGMENT", .one(Key(CInt(SOL_UDP), UDP_SEGMENT))) }
}

extension SocketOption where Value == PathMTUDiscovery {
    /// How datagrams are treated that are larger than the path carries (`IP_MTU_DISCOVER`, ip(7); on IPv6
    /// `IPV6_MTU_DISCOVER`, ipv6(7)). The first value is the system's (`net.ipv4.ip_no_pmtu_disc`). IP only.
    public static var pathMTUDiscovery: SocketOption {
        let keys = Keys.byFamily(ipv4: Key(ipv4, IP_MTU_DISCOVER), ipv6: Key(ipv6, IPV6_MTU_DISCOVER))
        return SocketOption("IP_MTU_DISCOVER", keys) {
            CInt($0.rawValue).kernelBytes
        } decode: {
            CInt(kernelBytes: $0).flatMap { PathMTUDiscovery(rawValue: Int($0)) }
        }
    }
}

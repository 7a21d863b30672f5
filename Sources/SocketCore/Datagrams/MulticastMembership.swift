internal import CLinux
internal import Glibc

/// The kernel's number of a network interface.
package struct InterfaceIndex: Hashable, Sendable {
    package let number: UInt32

    /// The kernel chooses an interface, by its routes.
    package static let any = InterfaceIndex(0)

    package init(_ number: UInt32) {
        self.number = number
    }

    /// The interface of that name, which needs no address; or what `LocalInterface` makes of the text, such
    /// as the interface with that address. The empty text means any.
    package init(_ text: String) throws(InterfaceError) {
        let isName = !text.utf8.contains(0) && if_nametoindex(text) != 0
        number = isName ? if_nametoindex(text) : try LocalInterface(text).index
        guard number != 0 || text.isEmpty else { throw InterfaceError("no interface has the address \(text)") }
    }
}

/// A multicast group that a socket joins on one interface, with all its senders or with one (RFC 3376, RFC
/// 3810; RFC 4607).
package struct MulticastMembership: Hashable, Sendable {
    package let group: SocketAddress
    /// Only datagrams of this sender are received. Several memberships of one group have one sender each.
    package let source: SocketAddress?
    package let interface: InterfaceIndex

    /// - Parameter interface: With `.any`, the zone of the group's address counts (`ff02::fb%eth0`).
    package init(of group: SocketAddress, from source: SocketAddress? = nil, on interface: InterfaceIndex = .any) {
        self.group = group
        self.source = source
        // The kernel does not look at the zone.
        self.interface = interface == .any ? InterfaceIndex(group.scope) : interface
    }
}

extension DatagramDescriptor {
    /// Joins a group.
    ///
    /// - Throws: EINVAL when the address is not a group's, or the source is of another family than the group;
    ///   ENODEV when the kernel lacks that interface, or finds none for that group; EADDRINUSE when it has
    ///   joined before; ENOBUFS when it is in too many groups (`net.ipv4.igmp_max_memberships`).
    package func join(_ membership: MulticastMembership) throws(SystemError) {
        try change(membership, any: MCAST_JOIN_GROUP, one: MCAST_JOIN_SOURCE_GROUP, "setsockopt(MCAST_JOIN_GROUP)")
    }

    /// Leaves a group. It names the interface as `join` did.
    ///
    /// - Throws: EADDRNOTAVAIL when it has not joined it.
    package func leave(_ membership: MulticastMembership) throws(SystemError) {
        try change(membership, any: MCAST_LEAVE_GROUP, one: MCAST_LEAVE_SOURCE_GROUP, "setsockopt(MCAST_LEAVE_GROUP)")
    }

    /// Multicast datagrams leave by this interface; with `.any`, by the one of the route.
    ///
    /// - Throws: EADDRNOTAVAIL or ENODEV when the kernel lacks that interface.
    package func setMulticastInterface(_ interface: InterfaceIndex) throws(SystemError) {
        if families != .ipv6 {
            var request = ip_mreqn()
            request.imr_ifindex = CInt(truncatingIfNeeded: interface.number)
            try set(CInt(IPPROTO_IP), IP_MULTICAST_IF, request, "setsockopt(IP_MULTICAST_IF)")
        }
        if families != .ipv4 {
            try set(
                CInt(IPPROTO_IPV6), IPV6_MULTICAST_IF, CInt(truncatingIfNeeded: interface.number), "setsockopt(IPV6_MULTICAST_IF)"
            )
        }
    }

    private func change(
        _ membership: MulticastMembership, any anySource: CInt, one oneSource: CInt, _ call: String
    ) throws(SystemError) {
        let level: CInt
        switch membership.group.family {
        case .ipv4: level = CInt(IPPROTO_IP)
        case .ipv6: level = CInt(IPPROTO_IPV6)
        case .unix, .virtualMachine: throw SystemError(call, errno: EAFNOSUPPORT).about(membership.group)
        }
        do throws(SystemError) {
            if let source = membership.source {
                let request = group_source_req(
                    gsr_interface: membership.interface.number, gsr_group: membership.group.storage, gsr_source: source.storage)
                try set(level, oneSource, request, call)
            } else {
                let request = group_req(gr_interface: membership.interface.number, gr_group: membership.group.storage)
                try set(level, anySource, request, call)
            }
        } catch {
            throw error.about(membership.group)
        }
    }

    private func set<Value: BitwiseCopyable>(_ level: CInt, _ option: CInt, _ value: Value, _ call: String) throws(SystemError) {
        let answer = withUnsafeBytes(of: value) {
            setsockopt(socket.rawValue, level, option, $0.baseAddress, socklen_t($0.count))
        }
        guard answer == 0 else { throw SystemError(call) }
    }
}

internal import CLinux
internal import Glibc

package struct InterfaceIndex: Hashable, Sendable {
    package let number: UInt32

    /// Lets the kernel choose an interface according to its routing table.
    package static let any = InterfaceIndex(0)

    package init(_ number: UInt32) {
        self.number = number
    }

    /// Finds the interface with the given name, even if it has no address. Other text is interpreted by
    /// `LocalInterface`, for example as an address of the interface. Empty text means any interface.
    package init(_ text: String) throws(InterfaceError) {
        let isName = !text.utf8.contains(0) && if_nametoindex(text) != 0
        number = isName ? if_nametoindex(text) : try LocalInterface(text, needsIndex: !text.isEmpty).index
        guard number != 0 || text.isEmpty else { throw InterfaceError("no interface has the address \"\(text)\"") }
    }
}

/// Membership in a multicast group on one interface, for datagrams from all senders or from one sender (RFC
/// 3376, RFC 3810; RFC 4607).
package struct MulticastMembership: Hashable, Sendable {
    package let group: SocketEndpoint
    /// The only sender to receive from. To receive from several senders, join the group once per sender.
    package let source: SocketEndpoint?
    package let interface: InterfaceIndex

    /// - Parameter interface: If `.any`, the zone of the group's address is used (`ff02::fb%eth0`).
    package init(of group: SocketEndpoint, from source: SocketEndpoint? = nil, on interface: InterfaceIndex = .any) {
        self.group = group
        self.source = source
        // The kernel ignores the zone of the address.
        self.interface = interface == .any ? InterfaceIndex(group.scope) : interface
    }
}

extension MulticastMembership {
    /// The address of a socket that receives only datagrams for the group.
    package func address(withPort port: UInt16) -> SocketEndpoint {
        // The kernel requires the scope for a group with link-local scope.
        group.withPort(port).withScope(interface.number)
    }
}

extension DatagramDescriptor {
    /// The address to which the socket is bound, if it is the address of a single interface. The kernel then
    /// delivers only datagrams with this destination, and therefore no datagrams for groups or broadcasts.
    package var onlyAddress: SocketEndpoint? {
        guard let address = localAddress, address.port != 0 else { return nil }
        let host = address.unmapped.hostBytes
        let isGroup = host.count == 4 ? (224...239).contains(host[0]) : host.first == 0xFF
        return isGroup || host.allSatisfy { $0 == 0 } ? nil : address
    }

    /// Opens a second socket on the same port that receives only datagrams with the destination `address`.
    ///
    /// - Parameter device: The only interface to receive from, or `nil` for all interfaces.
    package func receiver(
        at address: SocketEndpoint, on device: String? = nil, _ reception: DatagramReception, _ options: SocketOptionSet
    ) throws(SystemError) -> DatagramDescriptor {
        var options = options
        // Sockets bound to different addresses may receive from the same group.
        try options.set(.reuseAddress, to: true)
        if let device { try options.set(.bindToDevice, to: device) }
        let receiver = try DatagramDescriptor(opening: address.family == .ipv6 ? .ipv6 : .ipv4, options: options)
        _ = try receiver.prepareReception(reception)
        try receiver.bind(to: address)
        return receiver
    }

    /// Joins a group.
    ///
    /// - Throws: EINVAL if the address is not a multicast address or the source has a different family;
    ///   ENODEV if the interface does not exist or the routing table has no route to the group; EADDRINUSE
    ///   if the socket has already joined the group; ENOBUFS if the socket is in too many groups
    ///   (`net.ipv4.igmp_max_memberships`).
    package func join(_ membership: MulticastMembership) throws(SystemError) {
        try change(membership, any: MCAST_JOIN_GROUP, one: MCAST_JOIN_SOURCE_GROUP, "setsockopt(MCAST_JOIN_GROUP)")
    }

    /// Leaves a group. Name the interface in the same way as in `join`.
    ///
    /// - Throws: EADDRNOTAVAIL if the socket has not joined the group.
    package func leave(_ membership: MulticastMembership) throws(SystemError) {
        try change(membership, any: MCAST_LEAVE_GROUP, one: MCAST_LEAVE_SOURCE_GROUP, "setsockopt(MCAST_LEAVE_GROUP)")
    }

    /// Sets the interface on which multicast datagrams are sent. With `.any`, the route determines the
    /// interface.
    ///
    /// - Throws: EADDRNOTAVAIL or ENODEV if the interface does not exist.
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
        case .unix, .vsock: throw SystemError(call, errno: EAFNOSUPPORT).about(membership.group)
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

internal import SocketBuffers
internal import SocketCore

extension AsyncUDPSocket {
    /// Joins a multicast group, so that the socket also receives datagrams sent to the group.
    ///
    /// If the socket is bound to an interface's address, `interface` defaults to that interface, and each
    /// group uses an additional file descriptor. Connecting such a socket cancels its memberships.
    ///
    /// - Parameters:
    ///   - group: The group's address, such as `224.0.0.251` or `ff02::fb`.
    ///   - interface: The interface, by name or address. If `nil`, the kernel chooses it from its routes.
    ///   - source: The address of a sender, to receive only its datagrams (RFC 4607). To receive from several
    ///     senders, join once for each. If `nil`, datagrams from all senders are received.
    /// - Throws: `.badConfiguration` if the socket does not use the group's IP version; `.badParameter` for
    ///   text that is not an IP address, an address that is not a multicast group, or an unknown interface;
    ///   otherwise `.system` with the errno: EADDRINUSE if the socket has already joined the group, ENODEV,
    ///   ENOBUFS.
    public func joinMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change(.join, group, interface, source)
    }

    /// Removes the socket from a multicast group. Pass the same interface and source as to
    /// `joinMulticastGroup(_:onInterface:fromSource:)`.
    ///
    /// - Throws: The errors of `joinMulticastGroup(_:onInterface:fromSource:)`, and `.system` with
    ///   EADDRNOTAVAIL if the socket has not joined the group.
    public func leaveMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change(.leave, group, interface, source)
    }

    /// Sets the interface for outgoing multicast datagrams, for each IP version that the socket uses.
    ///
    /// - Parameter interface: The interface, by name or address.
    /// - Throws: `.badConfiguration` if the socket is not in use, `.badParameter` for an unknown interface.
    public func setMulticastInterface(_ interface: String) throws(AsyncSocketError) {
        try setMulticastInterface(interface, over: nil)
    }

    /// Sets the interface for outgoing multicast datagrams of one IP version or, if `family` is `nil`, of
    /// each IP version that the socket uses.
    ///
    /// - Throws: The errors of `setMulticastInterface(_:)`, and `.badConfiguration` if the socket does not
    ///   use the IP version.
    package func setMulticastInterface(_ interface: String, over family: SocketEndpoint.Family?) throws(AsyncSocketError) {
        let connection = try openConnection(.setMulticastInterface)
        let index = try GroupRequest.index(of: interface, .setMulticastInterface)
        let isDone: Bool
        do throws(SystemError) {
            isDone = try connection.record.withLock { record throws(SystemError) in
                let descriptors = (record.descriptors + record.unbound).filter { descriptor in
                    family.map { descriptor.has($0) } ?? true
                }
                for descriptor in descriptors { try descriptor.setMulticastInterface(index) }
                return family == nil || !descriptors.isEmpty
            }
        } catch {
            throw AsyncSocketError(datagram: error, .setMulticastInterface)
        }
        guard isDone else {
            let version = family == .ipv6 ? "IPv6" : "IPv4"
            throw .badConfiguration(
                .setMulticastInterface, "the socket does not use \(version): bind it to an \(version) address")
        }
    }

    /// Returns the descriptor for an IP version, or the first descriptor if `family` is `nil`. The descriptor
    /// may be closed at any time, except within `perform(_:)`.
    package func currentDescriptor(of family: SocketEndpoint.Family?) -> Int32? {
        connection?.record.withLock { record in
            (record.descriptors + record.unbound).first { descriptor in family.map { descriptor.has($0) } ?? true }?.socket
                .rawValue
        }
    }

    private func change(
        _ operation: AsyncSocketError.Operation, _ group: String, _ interface: String?, _ source: String?
    ) throws(AsyncSocketError) {
        let connection = try openConnection(operation)
        let request = try GroupRequest(operation, group, interface, source)
        let reception = configuration.reception
        try connection.record.withLock { (record) throws(AsyncSocketError) in
            let setup = GroupReceivers.Setup(reception: reception, options: record.options)
            try request.apply(to: record.boundDescriptors, &record.groupReceivers, setup)
        }
        connection.post(.opened)
    }
}

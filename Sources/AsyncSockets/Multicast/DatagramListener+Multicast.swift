internal import SocketBuffers
internal import SocketCore

extension DatagramListener {
    /// Joins a multicast group, so that the listener also receives datagrams sent to the group.
    ///
    /// Each destination address is a separate peer, so a client that sends both to the group and to
    /// the listener's own address appears as two peers. Replies are sent from an address of the interface.
    ///
    /// - Parameters:
    ///   - group: The group's address, such as `224.0.1.187` or `ff02::fd`.
    ///   - interface: The interface, by name or address. If `nil`, the kernel chooses it from its routes; a
    ///     listener that is bound to the address of an interface uses that interface.
    ///   - source: The address of a sender, to receive only its datagrams (RFC 4607). To receive from several
    ///     senders, join once for each. If `nil`, datagrams from all senders are received.
    /// - Throws: The errors of `AsyncUDPSocket.joinMulticastGroup(_:onInterface:fromSource:)`, and `.closed`
    ///   if the listener is closed.
    public func joinMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change(GroupRequest(.join, group, interface, source))
    }

    /// Removes the listener from a multicast group. Pass the same interface and source as to
    /// `joinMulticastGroup(_:onInterface:fromSource:)`. Existing peers stay connected.
    ///
    /// - Throws: The errors of `joinMulticastGroup(_:onInterface:fromSource:)`, and `.system` with
    ///   EADDRNOTAVAIL if the listener has not joined the group.
    public func leaveMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change(GroupRequest(.leave, group, interface, source))
    }

    private func change(_ request: GroupRequest) throws(AsyncSocketError) {
        guard isListening else { throw .closed }
        let model = preparation.model
        let setup = GroupReceivers.Setup(reception: model.configuration.reception, options: model.state.withLock { $0.options })
        try hub.changeReceivers { (descriptors, receivers) throws(AsyncSocketError) in
            try request.apply(to: descriptors, &receivers, setup)
        }
    }
}

internal import Dispatch
internal import SocketBuffers
public import SocketCore

extension AsyncUDPSocket {
    /// Whether the socket is bound or connected, or has sent a datagram, and is not closed. A snapshot, like
    /// the other properties of the socket's state.
    public var isOpen: Bool {
        connection?.record.withLock { $0.isOpen && !$0.isClosed } ?? false
    }

    /// Whether the socket is open or connecting.
    package var isInUse: Bool {
        connection?.record.withLock { ($0.isOpen || $0.isConnectClaimed) && !$0.isClosed } ?? false
    }

    /// Whether the socket is closed, or `close()` was called. False for a socket that was never in use.
    public var isClosed: Bool {
        connection?.record.withLock { $0.isClosed } ?? false
    }

    /// Whether the socket is connected to a peer.
    public var isConnected: Bool {
        connection?.record.withLock { $0.peer != nil && !$0.isClosed } ?? false
    }

    /// The peer's address, or `nil` if the socket is not connected. Still available after the socket has
    /// closed.
    public var connectedAddress: SocketEndpoint? {
        connection?.record.withLock { $0.peer }
    }

    /// The peer's IP address as text, or `nil` if the socket is not connected.
    public var connectedHost: String? { connectedAddress?.host }

    /// The peer's port, or `nil` if the socket is not connected.
    public var connectedPort: UInt16? { connectedAddress?.port }

    /// The local addresses: one per IP version that the socket uses, IPv4 first. Empty until the socket is in
    /// use. Still available after the socket has closed.
    public var localAddresses: [SocketEndpoint] {
        connection?.record.withLock { $0.localAddresses } ?? []
    }

    /// The first local address, or `nil` until the socket is in use.
    public var localAddress: SocketEndpoint? { localAddresses.first }

    /// The first local IP address as text, or `nil` until the socket is in use.
    public var localHost: String? { localAddress?.host }

    /// The local port, which is the same for both IP versions; 0 until the socket is in use.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    /// Whether the socket uses IPv4. Also true for an adopted socket with both IP versions on one descriptor.
    public var isIPv4: Bool {
        guard isOpen, let connection else { return false }
        return connection.record.withLock { record in
            record.localAddresses.contains { $0.family == .ipv4 } || record.descriptors.contains(where: \.hasIPv4)
        }
    }

    /// Whether the socket uses IPv6.
    public var isIPv6: Bool { isOpen && localAddresses.contains { $0.family == .ipv6 } }

    /// The socket's event loop, for tasks that use the socket:
    /// `Task(executorPreference: socket.executor) { … }`. See `AsyncSocket.executor`.
    public var executor: SocketEventLoop? {
        try? chooseLoop(.connect)
    }

    // MARK: - Options

    /// Sets a socket option: `try socket.setOption(.receiveBufferSize, to: 1 << 20)`.
    ///
    /// If the socket is in use, the option takes effect before the call returns, for both IP versions.
    /// Otherwise, it is stored and applied before the socket is bound. See `AsyncSocket.setOption(_:to:)`.
    /// UDP also supports `.broadcast`, `.multicastTTL`, `.multicastLoopback` and `.pathMTUDiscovery`.
    ///
    /// - Throws: `.badParameter` if the value is invalid or UDP does not support the option, `.system` if the
    ///   kernel rejects it.
    public func setOption<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(AsyncSocketError) {
        if connection?.record.withLock({ $0.sharedAddress }) != nil {
            throw .badConfiguration(.setOption, "the socket shares its listener's descriptor: set the option on the listener")
        }
        do throws(SystemError) {
            try state.withLock { state throws(SystemError) in
                try state.connection?.record.withLock { record throws(SystemError) in
                    for descriptor in record.descriptors { try descriptor.set(option, to: value) }
                    try record.options.set(option, to: value)
                }
                try state.options.set(option, to: value)
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .setOption)
        }
    }

    /// Returns the value of an option: the kernel's value if the socket is in use, or otherwise the value set
    /// earlier.
    ///
    /// - Throws: `.badConfiguration` if the socket has no descriptor and the option was not set, and
    ///   otherwise the errors of `setOption(_:to:)`.
    public func option<Value>(_ option: SocketOptionKey<Value>) throws(AsyncSocketError) -> Value {
        do throws(SystemError) {
            let value = try state.withLock { state throws(SystemError) in
                let descriptor = state.connection?.record.withLock { $0.descriptors.first }
                return try descriptor?.socket.value(of: option) ?? state.options.value(of: option)
            }
            if let value { return value }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .option)
        }
        throw .badConfiguration(.option, "the socket is not in use and \(option.name) was not set: set the option first")
    }

    /// Runs `body` with the socket's descriptors, one per IP version, while no other operation runs on the
    /// socket. Use it for system calls that this library does not offer. See `AsyncSocket.perform(_:)`.
    ///
    /// - Parameter body: Receives an empty array if the socket is not in use.
    public func perform(_ body: @escaping @Sendable (_ descriptors: [Int32]) -> Void) {
        if let connection { return connection.post(.perform(body)) }
        guard let socketQueue else { return Self.call(body, with: []) }
        socketQueue.async { Self.call(body, with: []) }
    }

    // MARK: - Multicast

    /// Joins a multicast group, so that the socket also receives datagrams sent to the group.
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
        try change(.join, group, interface, source) { (descriptor, membership) throws(SystemError) in
            try descriptor.join(membership)
        }
    }

    /// Leaves a multicast group. Pass the same interface and source as to
    /// `joinMulticastGroup(_:onInterface:fromSource:)`.
    ///
    /// - Throws: The errors of `joinMulticastGroup(_:onInterface:fromSource:)`, and `.system` with
    ///   EADDRNOTAVAIL if the socket has not joined the group.
    public func leaveMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change(.leave, group, interface, source) { (descriptor, membership) throws(SystemError) in
            try descriptor.leave(membership)
        }
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
        let index = try Self.index(of: interface, .setMulticastInterface)
        let isDone: Bool
        do throws(SystemError) {
            isDone = try connection.record.withLock { record throws(SystemError) in
                let descriptors = record.descriptors.filter { descriptor in family.map { descriptor.has($0) } ?? true }
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
            record.descriptors.first { descriptor in family.map { descriptor.has($0) } ?? true }?.socket.rawValue
        }
    }

    private func change(
        _ operation: AsyncSocketError.Operation, _ group: String, _ interface: String?, _ source: String?,
        _ body: (DatagramDescriptor, MulticastMembership) throws(SystemError) -> Void
    ) throws(AsyncSocketError) {
        let connection = try openConnection(operation)
        let groupAddress = try Self.address(group, operation)
        let sourceAddress = try source.map { (text) throws(AsyncSocketError) in try Self.address(text, operation) }
        let membership = MulticastMembership(
            of: groupAddress, from: sourceAddress,
            on: try interface.map { (text) throws(AsyncSocketError) in
                try Self.index(of: text, operation)
            } ?? .any)
        do throws(SystemError) {
            let isDone = try connection.record.withLock { record throws(SystemError) in
                guard let descriptor = record.descriptors.first(where: { $0.has(groupAddress.family) }) else { return false }
                try body(descriptor, membership)
                return true
            }
            if isDone { return }
        } catch {
            throw AsyncSocketError(datagram: error, operation)
        }
        let version = AsyncSocketError.families(of: [groupAddress])
        throw .badConfiguration(
            operation, "the group \"\(group)\" requires \(version), which the socket does not use: bind to an \(version) address")
    }

    private static func address(
        _ text: String, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> SocketEndpoint {
        guard let address = SocketEndpoint(literal: text, port: 0) else {
            throw .badParameter(operation, "\"\(text)\" is not an IP address")
        }
        return address
    }

    private static func index(
        of interface: String, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> InterfaceIndex {
        do throws(InterfaceError) {
            return try InterfaceIndex(interface)
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}

extension DatagramDescriptor {
    fileprivate func has(_ family: SocketEndpoint.Family) -> Bool {
        switch families {
        case .ipv4: family == .ipv4
        case .ipv6: family == .ipv6
        case .both: family.isInternet
        }
    }
}

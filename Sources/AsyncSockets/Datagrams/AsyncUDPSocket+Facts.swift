internal import Dispatch
internal import SocketBuffers
public import SocketCore

extension AsyncUDPSocket {
    /// True once the socket is bound, connected or has sent, until it is closed. A snapshot, like all facts.
    public var isOpen: Bool {
        connection?.record.withLock { $0.isOpen && !$0.isClosed } ?? false
    }

    /// True once the socket is bound, is connecting or has sent, until it is closed.
    package var isInUse: Bool {
        connection?.record.withLock { ($0.isOpen || $0.isConnectClaimed) && !$0.isClosed } ?? false
    }

    /// True once the socket is closed, or is to be closed. False on a socket that was not in use.
    public var isClosed: Bool {
        connection?.record.withLock { $0.isClosed } ?? false
    }

    /// True while the socket has a peer.
    public var isConnected: Bool {
        connection?.record.withLock { $0.peer != nil && !$0.isClosed } ?? false
    }

    /// The peer's address; nil while the socket is not connected. It stays after the end.
    public var connectedAddress: SocketAddress? {
        connection?.record.withLock { $0.peer }
    }

    /// The peer's address in numbers; nil while the socket is not connected.
    public var connectedHost: String? { connectedAddress?.host }

    /// The peer's port; nil while the socket is not connected.
    public var connectedPort: UInt16? { connectedAddress?.port }

    /// The local addresses: one for each version of IP that the socket uses, IPv4 first. None while it is not
    /// in use. They stay after the end.
    public var localAddresses: [SocketAddress] {
        connection?.record.withLock { $0.localAddresses } ?? []
    }

    /// The first of the local addresses; nil while the socket is not in use.
    public var localAddress: SocketAddress? { localAddresses.first }

    /// The first local address in numbers; nil while the socket is not in use.
    public var localHost: String? { localAddress?.host }

    /// The local port, which is the same for both versions of IP; 0 while the socket is not in use.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    /// True while the socket uses IPv4: also one that was adopted with both versions of IP on one descriptor.
    public var isIPv4: Bool {
        guard isOpen, let connection else { return false }
        return connection.record.withLock { record in
            record.localAddresses.contains { $0.family == .ipv4 } || record.descriptors.contains(where: \.hasIPv4)
        }
    }

    /// True while the socket uses IPv6.
    public var isIPv6: Bool { isOpen && localAddresses.contains { $0.family == .ipv6 } }

    /// The event loop of the socket, for tasks that serve it:
    /// `Task(executorPreference: socket.executor) { … }`. See `AsyncSocket.executor`.
    public var executor: EventLoop? {
        try? chooseLoop("executor")
    }

    // MARK: - Options

    /// Sets an option of the kernel: `try socket.setOption(.receiveBufferSize, to: 1 << 20)`.
    ///
    /// On a socket that is in use it takes effect before the call returns, for both versions of IP. Otherwise
    /// it is kept, and set before the socket is bound. See `AsyncSocket.setOption(_:to:)`; for UDP there are
    /// also `.broadcast`, `.multicastTTL`, `.multicastLoopback` and `.pathMTUDiscovery`.
    ///
    /// - Throws: `.badParameter` when the value is invalid or UDP lacks the option, `.system` when the kernel
    ///   refuses it.
    public func setOption<Value>(_ option: SocketOption<Value>, to value: Value) throws(AsyncSocketError) {
        if connection?.record.withLock({ $0.sharedAddress }) != nil {
            throw .badConfiguration("setOption", "the socket shares its descriptor with others: set it on the listener")
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
            throw AsyncSocketError(refusal: error, operation: "setOption")
        }
    }

    /// The value of an option: the kernel's for a socket that is in use, otherwise the one that was set here.
    ///
    /// - Throws: `.badConfiguration` when there is neither a descriptor nor a value that was set here, and
    ///   otherwise what `setOption(_:to:)` throws.
    public func option<Value>(_ option: SocketOption<Value>) throws(AsyncSocketError) -> Value {
        do throws(SystemError) {
            let value = try state.withLock { state throws(SystemError) in
                let descriptor = state.connection?.record.withLock { $0.descriptors.first }
                return try descriptor?.socket.value(of: option) ?? state.options.value(of: option)
            }
            if let value { return value }
        } catch {
            throw AsyncSocketError(refusal: error, operation: "option")
        }
        throw .badConfiguration("option", "the socket is not in use, and \(option.name) was not set: set it first")
    }

    /// Runs `body` with the descriptors, one for each version of IP, while nothing else happens to the
    /// socket: for system calls that this library does not offer. See `AsyncSocket.perform(_:)`.
    ///
    /// - Parameter body: Gets no descriptor when the socket is not in use.
    public func perform(_ body: @escaping @Sendable (_ descriptors: [Int32]) -> Void) {
        if let connection { return connection.post(.perform(body)) }
        guard let socketQueue else { return Self.call(body, with: []) }
        socketQueue.async { Self.call(body, with: []) }
    }

    // MARK: - Multicast

    /// Joins a multicast group, so that datagrams to it arrive here too.
    ///
    /// - Parameters:
    ///   - group: The group's address, such as `224.0.0.251` or `ff02::fb`.
    ///   - interface: The interface by name or address; nil: the kernel chooses, by its routes.
    ///   - source: The address of one sender: only its datagrams arrive (RFC 4607). You may join for several.
    ///     Nil: all senders.
    /// - Throws: `.badConfiguration` when the socket is not bound for that version of IP; `.badParameter` for
    ///   a text that is not an address, an address that is not a group's, and an unknown interface; `.system`
    ///   with the errno otherwise: EADDRINUSE when it has joined before, ENODEV, ENOBUFS.
    public func joinMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change("join", group, interface, source) { (descriptor, membership) throws(SystemError) in
            try descriptor.join(membership)
        }
    }

    /// Leaves a multicast group. Name the interface and the source as for
    /// `joinMulticastGroup(_:onInterface:fromSource:)`.
    ///
    /// - Throws: The errors of that, and `.system` with EADDRNOTAVAIL when the socket has not joined.
    public func leaveMulticastGroup(
        _ group: String, onInterface interface: String? = nil, fromSource source: String? = nil
    ) throws(AsyncSocketError) {
        try change("leave", group, interface, source) { (descriptor, membership) throws(SystemError) in
            try descriptor.leave(membership)
        }
    }

    /// Has multicast datagrams leave by one interface, for each version of IP that the socket uses.
    ///
    /// - Parameter interface: The interface by name or address.
    /// - Throws: `.badConfiguration` when the socket is not in use, `.badParameter` for an unknown interface.
    public func sendMulticast(onInterface interface: String) throws(AsyncSocketError) {
        try sendMulticast(onInterface: interface, over: nil)
    }

    /// The same for one version of IP; nil: for both.
    ///
    /// - Throws: `.badConfiguration` also when the socket does not use that version.
    package func sendMulticast(onInterface interface: String, over family: SocketAddress.Family?) throws(AsyncSocketError) {
        let connection = try openConnection("sendMulticast")
        let index = try Self.index(of: interface, "sendMulticast")
        let isDone: Bool
        do throws(SystemError) {
            isDone = try connection.record.withLock { record throws(SystemError) in
                let descriptors = record.descriptors.filter { descriptor in family.map { descriptor.has($0) } ?? true }
                for descriptor in descriptors { try descriptor.setMulticastInterface(index) }
                return family == nil || !descriptors.isEmpty
            }
        } catch {
            throw AsyncSocketError(datagram: error, "sendMulticast")
        }
        guard isDone else { throw .badConfiguration("sendMulticast", "the socket is not bound for that version of IP") }
    }

    /// The descriptor for a version of IP; nil: the first. It is closed at any time, except in `perform(_:)`.
    package func currentDescriptor(of family: SocketAddress.Family?) -> Int32? {
        connection?.record.withLock { record in
            record.descriptors.first { descriptor in family.map { descriptor.has($0) } ?? true }?.socket.rawValue
        }
    }

    private func change(
        _ operation: String, _ group: String, _ interface: String?, _ source: String?,
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
        throw .badConfiguration(operation, "the socket is not bound for the version of IP of \(group): bind it first")
    }

    private static func address(_ text: String, _ operation: String) throws(AsyncSocketError) -> SocketAddress {
        guard let address = SocketAddress(literal: text, port: 0) else {
            throw .badParameter(operation, "\(text) is not an IP address")
        }
        return address
    }

    private static func index(of interface: String, _ operation: String) throws(AsyncSocketError) -> InterfaceIndex {
        do throws(InterfaceError) {
            return try InterfaceIndex(interface)
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}

extension DatagramDescriptor {
    fileprivate func has(_ family: SocketAddress.Family) -> Bool {
        switch families {
        case .ipv4: family == .ipv4
        case .ipv6: family == .ipv6
        case .both: family.isInternet
        }
    }
}

public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

extension AsyncUDPSocket {
    // MARK: - Binding

    /// Binds the socket to a port on all interfaces, for each enabled IP version.
    ///
    /// When this returns, the kernel buffers arriving datagrams, up to the size of its receive buffer. A
    /// socket can be bound only once, before any other use. If it connects or sends first, the kernel chooses
    /// its address.
    ///
    /// - Parameter port: The port. If 0, the kernel chooses a free port, the same for both IP versions.
    /// - Throws: `.badConfiguration` if the socket is in use or closed, or if both IP versions are disabled;
    ///   `.badParameter` for an option that the kernel rejects; otherwise `.system` with the errno, such as
    ///   EADDRINUSE.
    public func bind(toPort port: UInt16) throws(AsyncSocketError) {
        try bind(toPort: port, interface: nil)
    }

    /// Binds the socket to a port on one interface.
    ///
    /// - Parameters:
    ///   - port: The port: see `bind(toPort:)`.
    ///   - interface: The name (`eth0`) or address (`192.0.2.7`, `2001:db8::7`) of an interface, or
    ///     `localhost`. For a name, the first address of each IP version is used, unless this machine lacks
    ///     the version. If `nil`, the socket is bound to all interfaces.
    /// - Throws: The errors of `bind(toPort:)`; `.badParameter` for an unknown interface; `.noUsableAddress`
    ///   for an interface without an address of an enabled IP version.
    public func bind(toPort port: UInt16, interface: String?) throws(AsyncSocketError) {
        try open(.bind, binding(toPort: port, interface: interface))
    }

    func binding(toPort port: UInt16, interface: String?) throws(AsyncSocketError) -> DatagramBinding {
        let families = try configuration.enabledFamilies(.bind)
        var addresses = ["0.0.0.0", "::"].compactMap { SocketEndpoint(literal: $0, port: port) }
        if let interface { addresses = try LocalInterface.named(interface, .bind, families: families).addresses }
        let chosen = [SocketEndpoint.Family.ipv4, .ipv6].compactMap { family in
            addresses.first { $0.family == family && families.allows(family) }
        }
        return DatagramBinding(
            addresses: chosen.map { $0.withPort(port == 0 ? $0.port ?? 0 : port) }, reception: configuration.reception)
    }

    /// Binds the socket to an address. The socket then uses only the IP version of that address.
    ///
    /// - Throws: The errors of `bind(toPort:)`; `.badParameter` for an address that is not an IP address;
    ///   `.noUsableAddress` for an address of a disabled IP version.
    public func bind(toAddress address: SocketEndpoint) throws(AsyncSocketError) {
        try open(.bind, binding(toAddress: address))
    }

    func binding(toAddress address: SocketEndpoint) throws(AsyncSocketError) -> DatagramBinding {
        let address = native(address)
        try check(address, .bind)
        return DatagramBinding(addresses: [address], reception: configuration.reception)
    }

    /// Returns the IPv4 form of an IPv4-mapped IPv6 address. An adopted dual-stack socket requires the mapped
    /// form.
    private func native(_ address: SocketEndpoint) -> SocketEndpoint {
        guard address.isMapped else { return address }
        let usesMapped = connection?.record.withLock { $0.descriptors.contains { $0.families == .both } } ?? false
        return usesMapped ? address : address.unmapped
    }

    private func check(_ address: SocketEndpoint, _ operation: AsyncSocketError.Operation) throws(AsyncSocketError) {
        guard address.family.isInternet else {
            throw .badParameter(operation, "\"\(address)\" is not an IP address, which UDP requires")
        }
        let isEnabled = state.withLock { $0.configuration.value.isEnabled(address.family) }
        guard isEnabled else {
            throw AsyncSocketError(
                .noUsableAddress, fault: .caller, operation: operation,
                message: "\"\(address)\" requires \(AsyncSocketError.families(of: [address])), which is disabled: enable it")
        }
    }

    private func open(_ operation: AsyncSocketError.Operation, _ binding: DatagramBinding) throws(AsyncSocketError) {
        try open(operation) { (options, unbound) throws(SystemError) in try binding.open(with: options, binding: unbound) }
    }

    private func open(
        _ operation: AsyncSocketError.Operation, as role: ConnectionRole = .server,
        _ makeDescriptors: (SocketOptionSet, _ unbound: [DatagramDescriptor]) throws(SystemError) -> [DatagramDescriptor]
    ) throws(AsyncSocketError) {
        let connection = try use(operation, as: role)
        let reception = configuration.reception
        let isFree: Bool
        do throws(SystemError) {
            isFree = try connection.record.withLock { record throws(SystemError) in
                guard !record.isOpen, !record.isClosed, !record.isConnectClaimed else { return false }
                do throws(SystemError) {
                    record.add(try makeDescriptors(record.options, record.unbound))
                    try record.updateBroadcasts(reception)
                } catch {
                    for descriptor in record.withdraw() { descriptor.socket.close() }
                    throw error
                }
                record.notePeer()
                return true
            }
        } catch {
            throw AsyncSocketError(datagram: error, operation)
        }
        guard isFree else { throw busy(operation) }
        connection.post(.opened)
    }

    /// Opens a descriptor for each enabled IP version without binding it, unless the socket is in use or
    /// already has descriptors. The next bind, connect or send uses them.
    ///
    /// - Throws: `.badConfiguration` if both IP versions are disabled, otherwise `.system` with the errno.
    package func createDescriptors() throws(AsyncSocketError) {
        let configuration = configuration
        let enabled = try configuration.enabledFamilies(.bind)
        let families = [SocketEndpoint.Family.ipv4, .ipv6].filter { enabled.allows($0) }
        let connection = try use(.bind)
        do throws(SystemError) {
            try connection.record.withLock { record throws(SystemError) in
                try record.create(families, configuration.reception)
            }
        } catch {
            throw AsyncSocketError(datagram: error, .bind)
        }
    }

    private func busy(_ operation: AsyncSocketError.Operation) -> AsyncSocketError {
        if isClosed { return .closed }
        return .badConfiguration(operation, "the socket is in use: call bind only once, before connect and send")
    }

    /// Binds the socket to an address chosen by the kernel, unless the socket is already in use.
    func openIfNeeded(_ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> DatagramConnection {
        let connection = try use(operation)
        if connection.record.withLock({ $0.isOpen || $0.isConnectClaimed || $0.isClosed }) { return connection }
        do throws(AsyncSocketError) {
            try bind(toPort: 0)
        } catch {
            // Another thread may have opened the socket first.
            guard error.code == .badConfiguration, connection.record.withLock({ $0.isOpen || $0.isConnectClaimed }) else {
                throw error
            }
        }
        return connection
    }

    // MARK: - Adopting

    /// Takes ownership of a UDP socket created by other code, whether bound, connected or neither.
    ///
    /// On success, the socket owns the descriptor: it makes the descriptor non-blocking and close-on-exec,
    /// applies the options set so far, and closes the descriptor when the socket closes. Datagrams that
    /// arrived before the call may lack some of their arrival information. If this throws, the descriptor
    /// still belongs to you.
    ///
    /// - Throws: `.badConfiguration` if the socket is in use or closed; `.badParameter` with an errno: EBADF
    ///   or ENOTSOCK, ESOCKTNOSUPPORT for a descriptor that is not a UDP socket, EAFNOSUPPORT for an address
    ///   family other than IPv4 and IPv6, or the kernel's error for an option that it rejects.
    public func adopt(_ descriptor: Int32) throws(AsyncSocketError) {
        do throws(SystemError) {
            try DatagramDescriptor.check(descriptor)
        } catch {
            throw AsyncSocketError(notUDP: error)
        }
        let reception = configuration.reception
        try open(.adopt, as: .adopted) { (options, _) throws(SystemError) in
            try DatagramDescriptor.check(descriptor, setting: options)
            let adopted = DatagramDescriptor(takingOver: descriptor)
            adopted.prepareAdopted(reception)
            return [adopted]
        }
    }

    /// Takes ownership of a UDP socket opened by a service manager such as systemd (`ListenDatagram=`).
    ///
    /// - Throws: The same errors as `adopt(_:)` with a descriptor number. EBADF also means that the
    ///   descriptor has already been taken.
    public func adopt(_ descriptor: InheritedDescriptor) throws(AsyncSocketError) {
        let reception = configuration.reception
        do throws(AsyncSocketError) {
            try open(.adopt, as: .adopted) { (options, _) throws(SystemError) in
                let adopted = try descriptor.takeDatagramSocket(setting: options)
                adopted.prepareAdopted(reception)
                return [adopted]
            }
        } catch {
            guard let number = error.errno else { throw error }
            throw AsyncSocketError(
                .badParameter, fault: .caller, operation: .adopt, message: error.message, errno: number)
        }
    }

    // MARK: - Connecting

    /// Connects to a host: the socket then sends only to one of the host's addresses, and receives only from
    /// it.
    ///
    /// Returns immediately. No datagrams are exchanged: the socket resolves the name and uses the first
    /// address to which the kernel has a route. Then `udpSocket(_:didConnectToAddress:)` is called, or
    /// `udpSocket(_:didNotConnect:)` with `.hostNotFound`, `.connectFailed` (the message lists every address)
    /// or `.connectTimeout`. Until then, datagrams for the peer are queued. If the socket was bound with both
    /// IP versions, it keeps only the descriptor for the peer's IP version.
    ///
    /// - Parameters:
    ///   - host: A name or an address: see `AsyncSocket.connect(toHost:onPort:viaInterface:withTimeout:)`.
    ///   - port: A UDP port, 1 to 65535.
    ///   - timeout: The time limit for name resolution in seconds, 30 by default. If negative, there is no
    ///     limit.
    /// - Throws: `.badConfiguration` if the socket is connected or connecting, or both IP versions are
    ///   disabled; `.badParameter` for an invalid host or port 0; `.closed` after `disconnect()`.
    public func connect(toHost host: String, onPort port: UInt16, withTimeout timeout: TimeInterval = 30) throws(AsyncSocketError)
    {
        try beginToConnect(to: target(host, port, .connect), timeout)
    }

    /// Connects to an address: see `connect(toHost:onPort:withTimeout:)`.
    ///
    /// - Throws: The errors of `connect(toHost:onPort:withTimeout:)`, and `.noUsableAddress` for an address
    ///   of a disabled IP version.
    public func connect(toAddress address: SocketEndpoint) throws(AsyncSocketError) {
        try beginToConnect(to: target(address, .connect), -1)
    }

    func beginToConnect(
        to target: DatagramTarget, _ seconds: Double, _ waiter: (any OperationWaiter<Void>)? = nil
    ) throws(AsyncSocketError) {
        let connection = try use(.connect, as: .client)
        guard let claim = connection.record.withLock({ $0.claimConnect(to: target.query) }) else {
            if isClosed { throw .closed }
            throw .badConfiguration(.connect, "the socket is connected or connecting: disconnect it first")
        }
        connection.post(.connect(target, claim, timeout: seconds, waiter: waiter))
    }

    func target(
        _ host: String, _ port: some BinaryInteger, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> DatagramTarget {
        try AsyncSocketError.checkHost(host, operation)
        let port = try AsyncSocketError.port(port, operation)
        guard port > 0 else { throw .badParameter(operation, "the port must be from 1 to 65535, but is 0") }
        let mapped = host.utf8.contains(UInt8(ascii: ":")) ? SocketEndpoint(literal: host, port: port) : nil
        let host = mapped?.isMapped == true ? mapped?.unmapped.host ?? host : host
        return .host(HostQuery(host: host, port: port, families: try configuration.enabledFamilies(operation)))
    }

    func target(
        _ address: SocketEndpoint, from source: DatagramSource? = nil, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> DatagramTarget {
        let address = native(address)
        try check(address, operation)
        guard address.port != 0 else { throw .badParameter(operation, "the port must be from 1 to 65535, but is 0") }
        return .address(InternetAddress(address), from: source)
    }

    /// Dissolves the association with the peer (connect(2)), or cancels an attempt to connect.
    ///
    /// The socket then receives from all senders again, keeps its port, and can connect again. `isConnected`
    /// becomes false when the change is complete, usually before this returns. Datagrams queued for the peer
    /// are still sent to it. Datagrams that arrive during the change may be lost. On a socket that is not
    /// connected, this has no effect. After `startDTLS`, and for a socket of a `DatagramListener`, it is
    /// equivalent to `disconnect()`.
    public func dissolveAssociation() {
        guard let connection, let claim = connection.record.withLock({ $0.letGo() }) else { return }
        connection.post(.dissolveAssociation(claim))
    }

    // MARK: - Closing

    /// Closes the socket immediately and discards all queued datagrams.
    ///
    /// Each discarded datagram fails with `.closed`, as do all waiting tasks. Then
    /// `udpSocketDidClose(_:withError:)` is called with a `nil` error. On a socket that is not in use, this
    /// has no effect.
    public func disconnect() {
        guard let connection else { return }
        connection.record.withLock { $0.isClosed = true }
        connection.post(.close(nil))
    }

    /// Closes the socket after all currently queued datagrams have been sent or have failed. Datagrams sent
    /// later fail with `.closed`.
    public func disconnectAfterSending() {
        connection?.post(.closeAfterSending)
    }

    /// Closes the socket after all currently queued datagrams have been sent or have failed.
    ///
    /// Returns when the socket is closed. Datagrams sent later fail with `.closed`. Waiting tasks fail with
    /// `.closed` when the socket closes. If the task is cancelled, the socket closes immediately. On a socket
    /// that is not in use, this has no effect.
    ///
    /// - Parameter timeout: How long sending may take. After that, the remaining datagrams fail with
    ///   `.closed`, and the socket closes.
    /// - Throws: `.writeTimeout` after `timeout`, or `CancellationError` if the task is cancelled.
    public nonisolated(nonsending) func close(timeout: Duration = .seconds(30)) async throws {
        guard let connection else { return }
        disconnectAfterSending()
        let waiter = DoneWaiter(.close, OperationLimit(timeout))
        connection.post(.awaitEnd(waiter))
        do {
            try await waiter.value(from: connection)
        } catch {
            disconnect()
            throw error
        }
    }
}

extension AsyncSocketError {
    fileprivate init(notUDP error: SystemError) {
        self.init(
            .badParameter, fault: .caller, operation: .adopt, message: "the descriptor is not a UDP socket: \(error)",
            errno: error.errno)
    }
}

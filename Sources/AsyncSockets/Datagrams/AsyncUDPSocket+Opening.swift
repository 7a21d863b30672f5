public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

extension AsyncUDPSocket {
    // MARK: - Binding

    /// Binds the socket to a port of all interfaces, for both versions of IP that are enabled.
    ///
    /// When it returns, the kernel keeps what arrives there, up to the size of its buffer. A socket is bound
    /// once, before anything else; one that connects or sends first gets an address from the kernel.
    ///
    /// - Parameter port: The port; 0 lets the kernel choose a free one, the same for both versions.
    /// - Throws: `.badConfiguration` when the socket is in use or closed, or both versions are disabled;
    ///   `.badParameter` for an option that the kernel refuses; `.system` with the errno otherwise, such as
    ///   EADDRINUSE.
    public func bind(toPort port: UInt16) throws(AsyncSocketError) {
        try bind(toPort: port, interface: nil)
    }

    /// Binds the socket to a port of one interface.
    ///
    /// - Parameters:
    ///   - port: The port, as for `bind(toPort:)`.
    ///   - interface: An interface's name (`eth0`) or address (`192.0.2.7`, `2001:db8::7`), or `localhost`.
    ///     With a name, the first address of each version. Nil: all interfaces.
    /// - Throws: The errors of `bind(toPort:)`; `.badParameter` for an unknown interface, `.noUsableAddress`
    ///   for one without an address of an enabled version.
    public func bind(toPort port: UInt16, interface: String?) throws(AsyncSocketError) {
        try open("bind", binding(toPort: port, interface: interface))
    }

    func binding(toPort port: UInt16, interface: String?) throws(AsyncSocketError) -> DatagramBinding {
        let families = try configuration.enabledFamilies("bind")
        var addresses = ["0.0.0.0", "::"].compactMap { SocketAddress(literal: $0, port: port) }
        if let interface { addresses = try LocalInterface.named(interface, "bind", families: families).addresses }
        let chosen = [SocketAddress.Family.ipv4, .ipv6].compactMap { family in
            addresses.first { $0.family == family && families.allows(family) }
        }
        return DatagramBinding(
            addresses: chosen.map { $0.withPort(port == 0 ? $0.port ?? 0 : port) }, reception: configuration.reception,
            isLenient: interface == nil)
    }

    /// Binds the socket to an address, for its version of IP alone.
    ///
    /// - Throws: The errors of `bind(toPort:)`; `.badParameter` for an address that is not of IP,
    ///   `.noUsableAddress` for one of a disabled version.
    public func bind(toAddress address: SocketAddress) throws(AsyncSocketError) {
        try open("bind", binding(toAddress: address))
    }

    func binding(toAddress address: SocketAddress) throws(AsyncSocketError) -> DatagramBinding {
        try check(address, "bind")
        return DatagramBinding(addresses: [address], reception: configuration.reception, isLenient: false)
    }

    private func check(_ address: SocketAddress, _ operation: String) throws(AsyncSocketError) {
        guard address.family.isInternet else {
            throw .badParameter(operation, "\(address) is not an address of IP, which UDP needs")
        }
        let isEnabled = state.withLock { $0.configuration.value.isEnabled(address.family) }
        guard isEnabled else {
            throw AsyncSocketError(
                .noUsableAddress, blame: .caller, operation: operation,
                message: "\(address) is of a version of IP that is disabled: enable it")
        }
    }

    private func open(_ operation: String, _ binding: DatagramBinding) throws(AsyncSocketError) {
        try open(operation) { (options) throws(SystemError) in try binding.open(with: options) }
    }

    private func open(
        _ operation: String, as role: ConnectionRole = .server,
        _ makeDescriptors: (SocketOptionSet) throws(SystemError) -> [DatagramDescriptor]
    ) throws(AsyncSocketError) {
        let connection = try use(operation, as: role)
        let isFree: Bool
        do throws(SystemError) {
            isFree = try connection.record.withLock { record throws(SystemError) in
                guard !record.isOpen, !record.isClosed, !record.isConnectClaimed else { return false }
                record.add(try makeDescriptors(record.options))
                record.notePeer()
                return true
            }
        } catch {
            throw AsyncSocketError(datagram: error, operation)
        }
        guard isFree else { throw busy(operation) }
        connection.post(.opened)
    }

    private func busy(_ operation: String) -> AsyncSocketError {
        if isClosed { return .closed }
        return .badConfiguration(operation, "the socket is in use: bind it once, before it connects or sends")
    }

    /// Binds to an address that the kernel chooses, unless the socket is in use.
    func openIfNeeded(_ operation: String) throws(AsyncSocketError) -> DatagramConnection {
        let connection = try use(operation)
        if connection.record.withLock({ $0.isOpen || $0.isConnectClaimed || $0.isClosed }) { return connection }
        do throws(AsyncSocketError) {
            try bind(toPort: 0)
        } catch {
            // Another thread may have been first.
            guard error.code == .badConfiguration, connection.record.withLock({ $0.isOpen || $0.isConnectClaimed }) else {
                throw error
            }
        }
        return connection
    }

    // MARK: - Sockets that others have made

    /// Takes over a UDP socket that other code has made: bound, connected, or neither.
    ///
    /// On success the descriptor belongs to the socket, which makes it non-blocking and close-on-exec, sets
    /// the options that were set here, and closes it in the end. The facts of a datagram that arrived before
    /// may be missing. When this throws, the descriptor is still yours.
    ///
    /// - Throws: `.badConfiguration` when the socket is in use or closed; `.badParameter` with an errno:
    ///   EBADF or ENOTSOCK, ESOCKTNOSUPPORT when it is not a UDP socket, EAFNOSUPPORT for another family; the
    ///   kernel's refusal of an option.
    public func adopt(_ descriptor: Int32) throws(AsyncSocketError) {
        do throws(SystemError) {
            try DatagramDescriptor.check(descriptor)
        } catch {
            throw AsyncSocketError(notUDP: error)
        }
        let reception = configuration.reception
        try open("adopt", as: .adopted) { (options) throws(SystemError) in
            try DatagramDescriptor.check(descriptor, setting: options)
            let adopted = DatagramDescriptor(takingOver: descriptor)
            adopted.prepareAdopted(reception)
            return [adopted]
        }
    }

    /// Takes over a UDP socket that a service manager, such as systemd, has opened (`ListenDatagram=`).
    ///
    /// - Throws: The errors of `adopt(_:)` for a number; EBADF also when the descriptor has been handed on.
    public func adopt(_ descriptor: InheritedDescriptor) throws(AsyncSocketError) {
        let reception = configuration.reception
        do throws(AsyncSocketError) {
            try open("adopt", as: .adopted) { (options) throws(SystemError) in
                let adopted = try descriptor.takeDatagramSocket(setting: options)
                adopted.prepareAdopted(reception)
                return [adopted]
            }
        } catch {
            guard let number = error.errno else { throw error }
            throw AsyncSocketError(
                .badParameter, blame: .caller, operation: "adopt", message: error.message, errno: number)
        }
    }

    // MARK: - Connecting

    /// Connects to a host: the socket then sends to one of its addresses, and hears it alone.
    ///
    /// Returns at once. UDP exchanges nothing for that: the socket resolves the name and takes the first
    /// address for which the kernel has a route. Then the delegate gets
    /// `udpSocket(_:didConnectToAddress:)`, or `udpSocket(_:didNotConnect:)` with `.hostNotFound`,
    /// `.connectFailed` (its message names every address) or `.connectTimeout`. Datagrams that are sent
    /// meanwhile wait. A socket that was bound for both versions of IP keeps the one of the peer.
    ///
    /// - Parameters:
    ///   - host: A name or an address, as for `AsyncSocket.connect(toHost:onPort:viaInterface:withTimeout:)`.
    ///   - port: A UDP port, 1 to 65535.
    ///   - timeout: Seconds from now for resolving, 30 by default; negative: no limit.
    /// - Throws: `.badConfiguration` when the socket is connected or connecting, or both versions are
    ///   disabled; `.badParameter` for text that is not a host, and for port 0; `.closed` after `close()`.
    public func connect(toHost host: String, onPort port: UInt16, withTimeout timeout: TimeInterval = 30) throws(AsyncSocketError)
    {
        try beginToConnect(to: target(host, port, "connect"), timeout)
    }

    /// Connects to an address: see `connect(toHost:onPort:withTimeout:)`.
    ///
    /// - Throws: The errors of that, and `.noUsableAddress` for an address of a disabled version.
    public func connect(toAddress address: SocketAddress) throws(AsyncSocketError) {
        try beginToConnect(to: target(address, "connect"), -1)
    }

    func beginToConnect(
        to target: DatagramTarget, _ seconds: Double, _ waiter: (any OperationWaiter<Void>)? = nil
    ) throws(AsyncSocketError) {
        let connection = try use("connect", as: .client)
        guard let claim = connection.record.withLock({ $0.claimConnect(to: target.query) }) else {
            if isClosed { throw .closed }
            throw .badConfiguration("connect", "the socket has a peer, or is connecting: disconnect it first")
        }
        connection.post(.connect(target, claim, timeout: seconds, waiter: waiter))
    }

    /// A host, checked.
    func target(_ host: String, _ port: some BinaryInteger, _ operation: String) throws(AsyncSocketError) -> DatagramTarget {
        try AsyncSocketError.checkHost(host, operation)
        let port = try AsyncSocketError.port(port, operation)
        guard port > 0 else { throw .badParameter(operation, "port 0 reaches no program: give a port from 1 to 65535") }
        return .host(HostQuery(host: host, port: port, families: try configuration.enabledFamilies(operation)))
    }

    /// An address, checked.
    func target(
        _ address: SocketAddress, from source: DatagramSource? = nil, _ operation: String
    ) throws(AsyncSocketError) -> DatagramTarget {
        try check(address, operation)
        guard address.port != 0 else { throw .badParameter(operation, "port 0 reaches no program: give a port from 1 to 65535") }
        return .address(InternetAddress(address), from: source)
    }

    /// Ends the connection with the peer, or the attempt to connect: the socket hears everyone again, on the
    /// port that it has, and may connect again. `isConnected` is false once that is done: mostly when this
    /// returns. Datagrams that wait for the peer still go to it, and some that arrive at this moment may be
    /// lost. It does nothing on a socket that is not connected. After `startDTLS`, and for the socket of a
    /// `DatagramListener`, it is the same as `close()`.
    public func disconnect() {
        guard let connection, let claim = connection.record.withLock({ $0.letGo() }) else { return }
        connection.post(.disconnect(claim))
    }

    // MARK: - The end

    /// Closes the socket at once, and gives up the datagrams that wait to be sent.
    ///
    /// Each of them is answered with `.closed`, tasks that wait get the same error, and
    /// `udpSocketDidClose(_:withError:)` follows without one. It does nothing on a socket that is not in use.
    public func close() {
        guard let connection else { return }
        connection.record.withLock { $0.isClosed = true }
        connection.post(.close(nil))
    }

    /// Closes the socket once the datagrams that wait now have been sent, or have failed. Later ones fail
    /// with `.closed`.
    public func closeAfterSending() {
        connection?.post(.closeAfterSending)
    }
}

extension AsyncSocketError {
    fileprivate init(notUDP error: SystemError) {
        self.init(
            .badParameter, blame: .caller, operation: "adopt", message: "the descriptor is not a UDP socket: \(error)",
            errno: error.errno)
    }
}

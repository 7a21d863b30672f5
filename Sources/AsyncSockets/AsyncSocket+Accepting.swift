internal import Dispatch
internal import Logging
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Listens on a port of every interface, over IPv4 and IPv6 where they are enabled.
    ///
    /// It returns once the socket listens, so that `localAddress` and `localPort` are known. A listener needs
    /// a delegate: `socket(_:didAcceptNewSocket:)` delivers each connection as a new socket, which you must
    /// keep. The new socket has the listener's delegate and delegate queue, its configuration
    /// (`isIPv4Enabled` and the like), options and logger, but not its `userData`. `disconnect()` stops
    /// listening at once and leaves the accepted sockets alone; `socketDidDisconnect(_:withError:)` follows.
    /// If this socket had a connection before, accepting begins once the end of that connection is delivered.
    ///
    /// - Parameter port: The port; 0 lets the kernel choose a free one, the same for both families.
    /// - Throws: `.badConfiguration` when the socket is in use, has no delegate, or has every family of the
    ///   addresses disabled; `.system` with an `errno` when it cannot listen on an address.
    public func accept(onPort port: UInt16) throws(AsyncSocketError) {
        try accept(on: Self.everyAddress(port: port))
    }

    /// Listens on a port of one interface: on all its addresses.
    ///
    /// - Parameters:
    ///   - interface: A name (`eth0`: all its addresses), an address (`127.0.0.1`, `::1`), or `localhost` or
    ///     `loopback` for both of these; nil: every interface. A port may follow it (`eth0:4000`,
    ///     `[::1]:4000`), which counts when `port` is 0.
    ///   - port: The port; 0 lets the kernel choose a free one.
    /// - Throws: `.badParameter` when there is no interface of that name, `.system` when no interface has the
    ///   address, `.noUsableAddress` when it has no address of an enabled family, and otherwise what
    ///   `accept(onPort:)` throws.
    public func accept(onInterface interface: String?, port: UInt16) throws(AsyncSocketError) {
        try accept(on: addresses(of: interface, port: port))
    }

    /// Listens on one address: IPv4, IPv6, a path of the file system as `accept(onPath:)` does, or an
    /// abstract name (unix(7)).
    ///
    /// - Parameter address: With port 0 the kernel chooses a free one. An IPv6 address does not take IPv4
    ///   connections.
    public func accept(onAddress address: SocketAddress) throws(AsyncSocketError) {
        try accept(on: [address])
    }

    /// Listens on a Unix-domain socket.
    ///
    /// It replaces a socket at that path on which nothing answers, such as one that a crash has left; to find
    /// out, it connects to the socket and closes the connection again. Anything else at that path stays as it
    /// is, and the error says what it is. The file is removed when listening ends, if it is still the one
    /// that was made here. When many sockets begin to listen in one directory at the same time, the call
    /// waits for the others, for a quarter of a second at most. The permissions of the directory and the
    /// process's `umask` decide who may connect.
    ///
    /// - Parameter path: 1 to 107 bytes of UTF-8 without a zero byte (unix(7)); it is never truncated.
    /// - Throws: `.badParameter` for another path, `.system` with `EADDRINUSE` when something is there, and
    ///   otherwise what `accept(onPort:)` throws.
    public func accept(onPath path: String) throws(AsyncSocketError) {
        try accept(on: [SocketAddress.ofSocket(at: path, "accept")])
    }

    /// How many accepted connections may be open at a time; nil (the default): any number.
    ///
    /// At the limit accepting stops, and further connections wait in the kernel's backlog until one is
    /// closed. Connections still open from an earlier `accept` of this socket count too. A change takes
    /// effect at once; a lower limit closes nothing.
    public var maximumAcceptedConnections: Int? {
        get { configuration.maximumAcceptedConnections }
        set {
            configure { $0.maximumAcceptedConnections = newValue }
            state.withLock { $0.quota }?.setLimit(newValue)
        }
    }

    // MARK: - Listening

    private func accept(on addresses: [SocketAddress]) throws(AsyncSocketError) {
        guard hasDelegate else {
            throw .badConfiguration("accept", "a listener needs a delegate, which gets its connections: set one first")
        }
        guard isDisconnected else { throw .badConfiguration("accept", "the socket is in use: disconnect it first") }
        let (listener, outlet) = try bind(to: enabled(addresses))
        do throws(AsyncSocketError) {
            try occupy("accept", with: .listening(listener, outlet))
        } catch {
            listener.discard()
            throw error
        }
    }

    private static func everyAddress(port: UInt16) -> [SocketAddress] {
        ["0.0.0.0", "::"].compactMap { SocketAddress(literal: $0, port: port) }
    }

    /// - Parameter interface: As for `accept(onInterface:port:)`.
    func addresses(of interface: String?, port: UInt16) throws(AsyncSocketError) -> [SocketAddress] {
        guard let interface else { return Self.everyAddress(port: port) }
        let families = try configuration.enabledFamilies("accept")
        let addresses = try LocalInterface.named(interface, "accept", families: families).addresses
        return addresses.filter { families.allows($0.family) }.map { port == 0 ? $0 : $0.withPort(port) }
    }

    /// Those of a family that is not disabled: at least one.
    func enabled(_ addresses: [SocketAddress]) throws(AsyncSocketError) -> [SocketAddress] {
        let configuration = configuration
        let enabled = addresses.filter {
            switch $0.family {
            case .ipv4: configuration.isIPv4Enabled
            case .ipv6: configuration.isIPv6Enabled
            case .unix, .virtualMachine: true
            }
        }
        guard !enabled.isEmpty else {
            throw .badConfiguration(
                "accept", "the families of all addresses are disabled: set isIPv4Enabled or isIPv6Enabled to true")
        }
        return enabled
    }

    private func bind(
        to addresses: [SocketAddress]
    ) throws(AsyncSocketError) -> (Listener, EventOutlet<AsyncSocket>) {
        let loop = try chooseLoop("accept")
        let (options, quota) = state.withLock { state in
            let quota = state.quota ?? AcceptQuota(limit: state.configuration.value.maximumAcceptedConnections, loop: loop)
            state.quota = quota
            return (state.options, quota)
        }
        let outlet = EventOutlet(of: self)
        let setup = Listener.Setup(
            loop: loop, options: options, quota: quota, logger: logger, observer: configuration.observer,
            accepted: { descriptor, peer, listener in
                outlet.append(.didAccept(AcceptedConnection(descriptor: descriptor, peer: peer, listener: listener)))
                outlet.deliver(onLoop: loop)
            },
            ended: { listener in
                outlet.append(.didStopListening(listener))
                outlet.deliver(onLoop: loop)
            })
        do throws(SystemError) {
            return (try Listener.listen(on: addresses, setup), outlet)
        } catch {
            throw AsyncSocketError(error, operation: "accept")
        }
    }

    /// Frees the socket, if this listener still occupies it.
    func vacate(_ listener: Listener) {
        state.withLock { state in
            if case .listening(let current, _) = state.occupation, current === listener { state.occupation = .nothing }
        }
    }

    // MARK: - The accepted sockets

    /// A socket for an accepted connection, on one of the process's loops.
    func makeChild(_ socketQueue: DispatchQueue?) throws(AsyncSocketError) -> AsyncSocket {
        do throws(SystemError) {
            return AsyncSocket(childOf: self, socketQueue: socketQueue, loop: try EventLoop.next())
        } catch {
            throw AsyncSocketError(error, operation: "accept")
        }
    }

    /// On a new socket: makes the connection for an accepted descriptor. `.adopt` starts it later.
    func prepare(_ accepted: AcceptedConnection) throws(AsyncSocketError) -> StreamConnection {
        let connection = try makeConnection("accept", as: .server)
        try connection.record.introduce(accepted)
        connection.outlet.isHeldBack = true
        return connection
    }
}

internal import Dispatch
internal import Logging
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Listens on a port of every interface, IPv4 and IPv6, as far as they are enabled.
    ///
    /// It returns when the socket listens, so that `localAddress` and `localPort` are known. A listener needs
    /// a delegate: each connection is announced by `socket(_:didAcceptNewSocket:)`, and the socket that it
    /// brings must be kept. The new socket has the listener's delegate, with its queue, its settings
    /// (`isIPv4Enabled` and its like), options and logger; not its `userData`. `disconnect()` stops
    /// listening, at once, and leaves the accepted sockets alone; `socketDidDisconnect(_:withError:)`
    /// follows. After an earlier connection of this socket accepting begins when the end of that one has been
    /// told.
    ///
    /// - Parameter port: The port; 0 lets the kernel choose a free one, the same for both families.
    /// - Throws: `.badConfiguration` when the socket is in use, has no delegate, or has all families of the
    ///   addresses switched off; `.system` when an address cannot be had, with its `errno`.
    public func accept(onPort port: UInt16) throws(AsyncSocketError) {
        try accept(on: ["0.0.0.0", "::"].compactMap { SocketAddress(literal: $0, port: port) })
    }

    /// Listens on a port of one interface: on all its addresses.
    ///
    /// - Parameters:
    ///   - interface: A name (`eth0`: all its addresses), an address (`127.0.0.1`, `::1`), or `localhost` or
    ///     `loopback` for both of these; nil: every interface. A port may stand behind it (`eth0:4000`,
    ///     `[::1]:4000`), for when `port` is 0.
    ///   - port: The port; 0 lets the kernel choose a free one.
    /// - Throws: `.badParameter` when there is no interface of that name, `.system` when no interface has the
    ///   address, `.noUsableAddress` when it has no address of an enabled family, and otherwise what
    ///   `accept(onPort:)` throws.
    public func accept(onInterface interface: String?, port: UInt16) throws(AsyncSocketError) {
        guard let interface else { return try accept(onPort: port) }
        let families = try configuration.enabledFamilies("accept")
        let addresses = try LocalInterface.named(interface, "accept", families: families).addresses
        try accept(on: addresses.filter { families.allows($0.family) }.map { port == 0 ? $0 : $0.withPort(port) })
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
    /// A socket that is there already and on which no one answers, as one that a crash has left, is replaced;
    /// to find out, a connection to it is made and closed again. Anything else at that path stays as it is,
    /// and the error says what it is. The file is removed when the listening ends, if it is still the one
    /// that was made here. When many listen in one directory at the same time this waits for the others, a
    /// quarter of a second at most. Who may connect is for the permissions of the directory and the process's
    /// `umask` to say.
    ///
    /// - Parameter path: 1 to 107 bytes of UTF-8 (unix(7)), no zero among them; it is never cut.
    /// - Throws: `.badParameter` for another path, `.system` with `EADDRINUSE` when something is there, and
    ///   otherwise what `accept(onPort:)` throws.
    public func accept(onPath path: String) throws(AsyncSocketError) {
        try accept(on: [SocketAddress.ofSocket(at: path, "accept")])
    }

    /// How many accepted connections may be open at a time; nil (the first value): any number.
    ///
    /// At the limit accepting stops, and further connections wait in the kernel's backlog until one is
    /// closed. Those that an earlier listening of this socket has left open count too. A change counts at
    /// once; lowering it closes nothing.
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
            throw .badConfiguration("accept", "a listener needs a delegate to give its connections to")
        }
        guard isDisconnected else { throw .badConfiguration("accept", "the socket is in use: disconnect it first") }
        let enabled = enabled(addresses)
        guard !enabled.isEmpty else {
            throw .badConfiguration("accept", "isIPv4Enabled or isIPv6Enabled is false, and no other address is left")
        }
        let (listener, outlet) = try bind(to: enabled)
        do throws(AsyncSocketError) {
            try occupy("accept", with: .listening(listener, outlet))
        } catch {
            listener.discard()
            throw error
        }
    }

    private func enabled(_ addresses: [SocketAddress]) -> [SocketAddress] {
        let configuration = configuration
        return addresses.filter {
            switch $0.family {
            case .ipv4: configuration.isIPv4Enabled
            case .ipv6: configuration.isIPv6Enabled
            case .unix, .virtualMachine: true
            }
        }
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
            loop: loop, options: options, quota: quota, logger: logger,
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

    /// The socket is free again, if it is still this listener's.
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

    /// On a new socket: makes the connection of an accepted descriptor, which is to begin to live with
    /// `.adopt`.
    func prepare(_ accepted: AcceptedConnection) throws(AsyncSocketError) -> StreamConnection {
        let connection = try makeConnection("accept", as: .server)
        try connection.introduce(accepted)
        connection.outlet.isHeldBack = true
        return connection
    }
}

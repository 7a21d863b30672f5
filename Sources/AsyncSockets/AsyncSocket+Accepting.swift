internal import Dispatch
internal import Logging
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Listens on a port on all interfaces, over IPv4 and IPv6 unless either is disabled.
    ///
    /// Returns once the socket is listening, so `localAddress` and `localPort` are known. A listener needs a
    /// delegate: `socket(_:didAcceptNewSocket:)` delivers each connection as a new socket, to which you must
    /// keep a reference. The new socket inherits the listener's delegate and delegate queue, configuration
    /// (such as `isIPv4Enabled`), options and logger, but not its `userData`. `disconnect()` stops listening
    /// immediately and does not affect the accepted sockets. `socketDidDisconnect(_:withError:)` follows. If
    /// this socket previously had a connection, it starts accepting only after the
    /// `socketDidDisconnect(_:withError:)` of that connection has been delivered.
    ///
    /// - Parameter port: The port. If 0, the kernel chooses a free port, the same one for both families.
    /// - Throws: `.badConfiguration` if the socket is in use or has no delegate, or if the IP versions of all
    ///   the addresses are disabled; `.system` with an `errno` if it cannot listen on an address.
    public func accept(onPort port: UInt16) throws(AsyncSocketError) {
        try accept(on: configuration.listenAddresses(of: nil, port: port))
    }

    /// Listens on a port on all addresses of one interface.
    ///
    /// - Parameters:
    ///   - interface: The name of an interface (`eth0`, for all its addresses), an address (`127.0.0.1`,
    ///     `::1`), or `localhost` or `loopback` for both loopback addresses. If `nil`, the socket listens on
    ///     every interface. A port may follow (`eth0:4000`, `[::1]:4000`) and is used if `port` is 0.
    ///   - port: The port. If 0, the kernel chooses a free port.
    /// - Throws: `.badParameter` if no interface has that name, `.system` if no interface has the address,
    ///   `.noUsableAddress` if the interface has no address of an enabled family, and otherwise the errors of
    ///   `accept(onPort:)`.
    public func accept(onInterface interface: String?, port: UInt16) throws(AsyncSocketError) {
        try accept(on: configuration.listenAddresses(of: interface, port: port))
    }

    /// Listens on one address: IPv4, IPv6, a file-system path as with `accept(onPath:)`, or an abstract name
    /// (unix(7)).
    ///
    /// - Parameter address: The address. If its port is 0, the kernel chooses a free port. An IPv6 address
    ///   does not accept IPv4 connections.
    public func accept(onAddress address: SocketEndpoint) throws(AsyncSocketError) {
        try accept(on: [address])
    }

    /// Listens on a Unix-domain socket.
    ///
    /// Replaces an existing socket at that path if no process is listening on it, such as a socket left
    /// behind by a crash. To check this, the call connects to the existing socket and immediately closes the
    /// connection. Any other file at that path is left unchanged, and the error describes it. When listening
    /// stops, the socket file is removed if it is still the one created here. If many sockets start listening
    /// in the same directory at the same time, the call may block until the earlier calls are finished, for
    /// at most a quarter of a second. The permissions of the directory and the process's `umask` decide who
    /// may connect.
    ///
    /// - Parameter path: 1 to 107 bytes of UTF-8 without a zero byte (unix(7)). The path is never truncated.
    /// - Throws: `.badParameter` for an invalid path, `.system` with `EADDRINUSE` if the path is already
    ///   taken, and otherwise the errors of `accept(onPort:)`.
    public func accept(onPath path: String) throws(AsyncSocketError) {
        try accept(on: [SocketEndpoint.ofSocket(at: path, .listen)])
    }

    /// The maximum number of accepted connections that may be open at the same time. Defaults to 10,000;
    /// `.max` sets no limit, and values below 1 are set to 1.
    ///
    /// At the limit, the socket stops accepting, and further connections stay in the kernel's backlog until
    /// an open one closes. Unproven connections are replaced, as described for
    /// `SocketListener.maximumConnections`. Connections still open from an earlier `accept` call on this
    /// socket also count. A change takes effect immediately. Lowering the limit does not close any
    /// connections.
    public var maximumConnections: Int {
        get { configuration.maximumConnections }
        set {
            let limit = newValue.clamped(to: 1...)
            configure { $0.maximumConnections = limit }
            state.withLock { $0.quota }?.setLimit(limit)
        }
    }

    /// The maximum number of accepted connections from one source that may be open at the same time. Defaults
    /// to four fifths of `maximumConnections`, so that no client can shut out all other clients; values below
    /// 1 are set to 1.
    ///
    /// A source is an IPv4 address or an IPv6 `/64`. At the limit, further connections from the source are
    /// accepted and reset immediately. A warning is logged, at most once a minute, and the observer receives
    /// `.failed` with the code `.tooManyConnections`. A change takes effect immediately. Lowering the limit
    /// does not close any connections. Peers that are not on an IP network are not limited.
    public var maximumConnectionsPerSource: Int {
        get { configuration.maximumConnectionsPerSource ?? SourceKey.share(of: maximumConnections) }
        set {
            let limit = newValue.clamped(to: 1...)
            configure { $0.maximumConnectionsPerSource = limit }
            state.withLock { $0.quota }?.setLimitPerSource(limit)
        }
    }

    // MARK: - Listening

    private func accept(on addresses: [SocketEndpoint]) throws(AsyncSocketError) {
        guard hasDelegate else {
            throw .badConfiguration(.listen, "no delegate is set to receive the accepted connections: set a delegate first")
        }
        let configuration = configuration
        guard isDisconnected else { throw .badConfiguration(.listen, "the socket is in use: disconnect it first") }
        let (listener, outlet) = try bind(to: configuration.enabled(addresses))
        do throws(AsyncSocketError) {
            try occupy(.listen, with: .listening(listener, outlet))
        } catch {
            listener.discard()
            throw error
        }
    }

    private func bind(
        to addresses: [SocketEndpoint]
    ) throws(AsyncSocketError) -> (Listener, EventOutlet<AsyncSocket>) {
        let loop = try chooseLoop(.listen)
        let (options, quota) = state.withLock { state in
            let quota =
                state.quota
                ?? AcceptQuota(
                    limit: state.configuration.value.maximumConnections,
                    limitPerSource: state.configuration.value.maximumConnectionsPerSource, loop: loop)
            state.quota = quota
            return (state.options, quota)
        }
        let outlet = EventOutlet(of: self)
        let setup = Listener.Setup(
            loop: loop, options: options, quota: quota, logger: logger, observer: configuration.observer,
            accepted: { descriptor, peer, listener in
                guard listener.isOpen else { return }
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
            throw AsyncSocketError(error, operation: .listen)
        }
    }

    func vacate(_ listener: Listener) {
        state.withLock { state in
            if case .listening(let current, _) = state.occupation, current === listener { state.occupation = .nothing }
        }
    }

    // MARK: - Accepted sockets

    /// Creates a socket for an accepted connection, on one of the process's event loops.
    func makeChild(_ socketQueue: DispatchQueue?) throws(AsyncSocketError) -> AsyncSocket {
        do throws(SystemError) {
            return AsyncSocket(childOf: self, socketQueue: socketQueue, loop: try SocketEventLoop.next())
        } catch {
            throw AsyncSocketError(error, operation: .accept)
        }
    }

    /// Called on a new socket. Creates the connection for an accepted descriptor, which `.adopt` starts
    /// later.
    ///
    /// - Parameter awaitsTLS: Whether the listener will start TLS.
    func prepare(_ accepted: AcceptedConnection, awaitsTLS: Bool = false) throws(AsyncSocketError) -> StreamConnection {
        let connection = try makeConnection(.accept, as: .server)
        try connection.record.introduce(accepted, awaitsTLS: awaitsTLS)
        connection.outlet.isHeldBack = true
        accepted.descriptor.setOwner(connection)
        return connection
    }
}

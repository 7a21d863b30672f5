public import FoundationEssentials
internal import SocketBuffers
package import SocketCore

extension AsyncSocket {
    /// Connects to a host.
    ///
    /// Returns at once. The socket resolves the name and tries its addresses as RFC 8305 ("Happy Eyeballs")
    /// says: the preferred family first, then the families in turn, each `alternateAddressDelay` after the
    /// one before it or as soon as one fails. The first to connect wins, and the others are cancelled. Then
    /// the delegate gets `socket(_:didConnectToHost:port:)`, or `socketDidDisconnect(_:withError:)` with
    /// `.hostNotFound`, `.noUsableAddress`, `.connectFailed` (its message names every address),
    /// `.connectionReset` if the peer accepts the connection and resets it immediately, or `.connectTimeout`.
    /// You may queue reads, writes and `startTLS` before that. `disconnect()` ends the attempt at any time.
    /// `isIPv4Enabled` and similar settings are read when you call this.
    ///
    /// With a `proxy`, all this applies to the proxy, which resolves the host and connects to it.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address in four decimal numbers, or an IPv6 address, which may be in
    ///     brackets (`[::1]`). `localhost` is this machine, whatever a name server says (RFC 6761). Other
    ///     text that ends in a number, such as the shorthands `127.1` and `0x7f.0.0.1`, is refused: programs
    ///     disagree about what it means.
    ///   - port: A TCP port, 1 to 65535.
    ///   - interface: Where the connection leaves from: an interface's name (`eth0`) or address (`192.0.2.7`,
    ///     `2001:db8::7`), `localhost`, and with a colon a port of our own (`eth0:4000`, `192.0.2.7:4000`,
    ///     `[2001:db8::7]:4000`, `:4000`). The socket is bound to the interface's address of the host's
    ///     family; the kernel's routing table still decides the way. A link-local host without a scope gets
    ///     this interface's. Nil: any interface.
    ///   - timeout: Seconds from now for resolving and connecting together, 30 by default; negative: no
    ///     limit.
    /// - Throws: `.badConfiguration` when the socket is in use or both families are disabled, `.badParameter`
    ///   for text that is not a host (empty, with a zero byte, longer than 255 bytes, a shorthand), port 0 or
    ///   an unknown interface, `.noUsableAddress` for an interface without an address of an enabled family,
    ///   `.system` when the kernel does not list the interfaces. With a proxy, `.badParameter` also for a
    ///   host, a proxy or credentials that cannot be sent in a request to it (RFC 1928, RFC 9110): a name
    ///   with other characters than letters, digits, hyphens, underscores and dots.
    public func connect(
        toHost host: String, onPort port: UInt16, viaInterface interface: String? = nil, withTimeout timeout: TimeInterval = 30
    ) throws(AsyncSocketError) {
        try connect(to: destination(host, port, via: interface), timeout: timeout)
    }

    /// Connects to an address: IPv4, IPv6, a Unix-domain path or abstract name, or a port of a virtual
    /// machine.
    ///
    /// Returns at once; then the delegate gets `socket(_:didConnectToHost:port:)`, for a path
    /// `socket(_:didConnectToPath:)`, or `socketDidDisconnect(_:withError:)`. For an abstract name and a
    /// virtual machine the "host" is the address's description and the port 0. A `proxy` is asked for an IPv4
    /// or IPv6 address; any other address is reached without it.
    ///
    /// - Parameters:
    ///   - address: Where to connect. When the backlog of a Unix-domain listener is full, the socket tries
    ///     again until there is room, as a blocking connect(2) would.
    ///   - interface: As for `connect(toHost:onPort:viaInterface:withTimeout:)`; it must be nil for an
    ///     address that is neither IPv4 nor IPv6.
    ///   - timeout: Seconds from now, 30 by default; negative: no limit.
    /// - Throws: What `connect(toHost:onPort:viaInterface:withTimeout:)` throws, and `.noUsableAddress` when
    ///   the address's family is disabled or the interface has no address of it.
    public func connect(
        toAddress address: SocketAddress, viaInterface interface: String? = nil, withTimeout timeout: TimeInterval = 30
    ) throws(AsyncSocketError) {
        try connect(to: destination(address, via: interface), timeout: timeout)
    }

    /// Connects to the Unix-domain socket at a path.
    ///
    /// Returns at once; then the delegate gets `socket(_:didConnectToPath:)` or
    /// `socketDidDisconnect(_:withError:)`.
    ///
    /// - Parameters:
    ///   - path: 1 to 107 bytes of UTF-8 without a zero byte (unix(7)); it is never truncated.
    ///   - timeout: Seconds from now; negative: no limit.
    /// - Throws: `.badConfiguration` when the socket is in use, `.badParameter` for another path.
    public func connect(toPath path: String, withTimeout timeout: TimeInterval) throws(AsyncSocketError) {
        try connect(toAddress: SocketAddress.ofSocket(at: path, "connect"), withTimeout: timeout)
    }

    // MARK: - Inside

    /// The destination, checked; by way of the proxy, if there is one.
    func destination(
        _ host: String, _ port: some BinaryInteger, via interface: String?
    ) throws(AsyncSocketError) -> Destination {
        try AsyncSocketError.checkHost(host, "connect")
        let port = try AsyncSocketError.port(port, "connect")
        guard port > 0 else { throw .badParameter("connect", "the port must be from 1 to 65535, and is 0") }
        return try destination(.host(host, port: port), routePolicy(via: interface))
    }

    func destination(
        _ address: SocketAddress, via interface: String?
    ) throws(AsyncSocketError) -> Destination {
        guard address.port != 0 else { throw .badParameter("connect", "the port must be from 1 to 65535, and is 0") }
        let isInternet = address.family.isInternet
        guard isInternet || interface == nil else {
            throw .badParameter("connect", "\(address) is not reached through an interface: leave the interface out")
        }
        let policy = isInternet ? try routePolicy(via: interface) : RoutePolicy()
        if !isInternet || proxy == nil {
            do throws(NoRoute) {
                _ = try policy.routes(to: [address])
            } catch {
                throw AsyncSocketError(error, destination: "\(address)")
            }
        }
        return try destination(.address(address), policy)
    }

    private func connect(to destination: Destination, timeout: TimeInterval) throws(AsyncSocketError) {
        guard !timeout.isNaN else { throw .badParameter("connect", "the timeout must be a number of seconds, and is NaN") }
        try makeConnection(to: destination).post(.connect(destination, timeout: timeout))
    }

    /// A new connection of a client, with nothing to do yet.
    func makeConnection(to destination: Destination) throws(AsyncSocketError) -> StreamConnection {
        let connection = try makeConnection("connect")
        connection.record.withLock { record in
            record.claims.host = destination.host
            record.claims.endpoint = CopyOnWrite(destination.endpoint)
        }
        return connection
    }

    /// To the target or, with a proxy, to the proxy. Only IP connections have proxies.
    private func destination(_ target: Destination.Target, _ policy: RoutePolicy) throws(AsyncSocketError) -> Destination {
        let configuration = configuration
        guard let proxy = configuration.proxy, let (host, port) = target.hostAndPort else {
            return Destination(target: target, policy: policy, resolver: configuration.resolver)
        }
        return Destination(
            target: .host(proxy.host, port: proxy.port), tunnel: try Tunnel(through: proxy, toHost: host, port: port),
            policy: policy,
            resolver: configuration.resolver)
    }

    private func routePolicy(via text: String?) throws(AsyncSocketError) -> RoutePolicy {
        let configuration = configuration
        let families = try configuration.enabledFamilies("connect")
        var policy = RoutePolicy(
            families: families, preferredFamily: configuration.isIPv4PreferredOverIPv6 ? .ipv4 : .ipv6,
            attemptDelay: configuration.alternateAddressDelay)
        if let text, !text.isEmpty { policy.interface = try LocalInterface.named(text, "connect", families: families) }
        return policy
    }

    /// Resolves host names: for tests that choose the addresses of a host.
    package var resolver: Resolver {
        get { configuration.resolver }
        set { configure { $0.resolver = newValue } }
    }

    /// The grace period after a failed write, in seconds, for bytes that came before the end: for tests,
    /// which must not depend on a quiet machine.
    package var failedWriteGrace: TimeInterval {
        get { configuration.failedWriteGrace }
        set { configure { $0.failedWriteGrace = newValue } }
    }

    /// Puts a socket that has not been used yet on a loop: for tests that look at the loop.
    package func stay(on loop: EventLoop) {
        state.withLock { $0.loop = loop }
    }

    /// A new connection for this socket, on its loop, with nothing to do yet.
    func makeConnection(
        _ operation: String, as role: ConnectionRole = .client
    ) throws(AsyncSocketError) -> StreamConnection {
        let connection = StreamConnection(for: self, as: role, loop: try chooseLoop(operation))
        // Before anyone can reach it: a `disconnect()` from another thread finds a connection that can
        // deliver its end.
        connection.register()
        do throws(AsyncSocketError) {
            try occupy(operation, with: .connection(connection))
        } catch {
            connection.deregister()
            throw error
        }
        return connection
    }

    /// The socket's loop.
    func chooseLoop(_ operation: String) throws(AsyncSocketError) -> EventLoop {
        if let loop = state.withLock({ $0.loop }) { return loop }
        let loop = try EventLoop.next(for: operation)
        return state.withLock { state in
            let chosen = state.loop ?? loop
            state.loop = chosen
            return chosen
        }
    }
}

extension SocketAddress {
    /// The Unix-domain socket at a path that the caller has given.
    static func ofSocket(at path: String, _ operation: String) throws(AsyncSocketError) -> SocketAddress {
        if let address = SocketAddress(unixPath: path) { return address }
        let fault = path.utf8.contains(0) ? "this one contains a zero byte" : "this one has \(path.utf8.count)"
        throw .badParameter(operation, "the path of a socket has 1 to \(longestUnixPath) bytes, and \(fault): \(path)")
    }
}

extension SocketConfiguration {
    /// The families that may be used: at least one.
    func enabledFamilies(_ operation: String) throws(AsyncSocketError) -> AddressFamilies {
        try AddressFamilies(isIPv4Enabled: isIPv4Enabled, isIPv6Enabled: isIPv6Enabled, operation)
    }
}

extension AddressFamilies {
    /// The families that the user of a socket has enabled: at least one.
    init(isIPv4Enabled: Bool, isIPv6Enabled: Bool, _ operation: String) throws(AsyncSocketError) {
        self = []
        if isIPv4Enabled { insert(.ipv4) }
        if isIPv6Enabled { insert(.ipv6) }
        guard !isEmpty else {
            throw .badConfiguration(operation, "IPv4 and IPv6 are both disabled: enable one of them")
        }
    }
}

extension LocalInterface {
    /// The interface that `text` names, with an address of one of `families`.
    static func named(_ text: String, _ operation: String, families: AddressFamilies) throws(AsyncSocketError) -> LocalInterface {
        let interface: LocalInterface
        do throws(InterfaceError) {
            interface = try LocalInterface(text)
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
        guard interface.addresses.contains(where: { families.allows($0.family) }) else {
            throw AsyncSocketError(
                .noUsableAddress, blame: .caller, operation: operation,
                message: "the interface \(text) has no address of an enabled family: enable one, or choose another interface")
        }
        return interface
    }
}

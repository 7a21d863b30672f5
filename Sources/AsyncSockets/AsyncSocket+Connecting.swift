public import FoundationEssentials
internal import SocketBuffers
package import SocketCore

extension AsyncSocket {
    /// Connects to a host.
    ///
    /// Returns at once. The name is resolved, and its addresses are tried as RFC 8305 ("Happy Eyeballs")
    /// says: the preferred family first, then the families in turn, each `alternateAddressDelay` after the
    /// one before it or as soon as one fails; the first to connect wins, and the others are given up. Then
    /// the delegate gets `socket(_:didConnectToHost:port:)`, or `socketDidDisconnect(_:withError:)` with
    /// `.hostNotFound`, `.noUsableAddress`, `.connectFailed` (its message names every address) or
    /// `.connectTimeout`. Reads, writes and `startTLS` may be queued before that. `disconnect()` ends it at
    /// any time. `isIPv4Enabled` and its like count as they are now.
    ///
    /// With a `proxy`, all this concerns the way to the proxy; the host is the proxy's to resolve and to
    /// connect to.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address in four decimal numbers, or an IPv6 address, which may be in
    ///     brackets (`[::1]`). `localhost` is this machine, whatever a name server says (RFC 6761). What ends
    ///     in a number and is no such address, as the shorthands `127.1` and `0x7f.0.0.1`, is refused:
    ///     programs disagree about what they mean.
    ///   - port: A TCP port, 1 to 65535.
    ///   - interface: Where the connection has to leave from: an interface's name (`eth0`) or address
    ///     (`192.0.2.7`, `2001:db8::7`), `localhost`, and with a colon a port of our own (`eth0:4000`,
    ///     `192.0.2.7:4000`, `[2001:db8::7]:4000`, `:4000`). The socket is bound to its address of the host's
    ///     family; the kernel's routes still decide about the way. A link-local host without a scope gets
    ///     this interface's. Nil: any.
    ///   - timeout: Seconds from now for the resolving and connecting together, 30 unless you say otherwise;
    ///     negative: no limit.
    /// - Throws: `.badConfiguration` when the socket is in use or both families are disabled, `.badParameter`
    ///   for a text that names no host (empty, with a zero byte, longer than 255 bytes, a shorthand), port 0
    ///   or an unknown interface, `.noUsableAddress` for an interface without an address of an enabled
    ///   family, `.system` when the kernel does not say which interfaces there are. With a proxy,
    ///   `.badParameter` also for a host, a proxy or credentials that cannot be sent in a request to it (RFC
    ///   1928, RFC 9110): a name with other characters than letters, digits, hyphens, underscores and dots.
    public func connect(
        toHost host: String, onPort port: UInt16, viaInterface interface: String? = nil, withTimeout timeout: TimeInterval = 30
    ) throws(AsyncSocketError) {
        try AsyncSocketError.checkHost(host, "connect")
        guard port > 0 else { throw .badParameter("connect", "nobody listens on port 0") }
        try connect(to: .host(host, port: port), policy: routePolicy(via: interface), timeout: timeout)
    }

    /// Connects to an address: IPv4, IPv6, a Unix-domain path or abstract name, or a port of a virtual
    /// machine.
    ///
    /// Returns at once; then the delegate gets `socket(_:didConnectToHost:port:)`, for a path
    /// `socket(_:didConnectToPath:)`, or `socketDidDisconnect(_:withError:)`. For an abstract name and a
    /// virtual machine the "host" is the address's description and the port 0. A `proxy` is asked for an IPv4
    /// or IPv6 address, and has nothing to do with a Unix-domain one.
    ///
    /// - Parameters:
    ///   - address: Where to. A Unix-domain listener whose backlog is full is asked again until it takes the
    ///     connection, as a blocking connect(2) would.
    ///   - interface: As for `connect(toHost:onPort:viaInterface:withTimeout:)`; it has to be nil for an
    ///     address that is not of IP.
    ///   - timeout: Seconds, 30 unless you say otherwise; negative: no limit.
    /// - Throws: What `connect(toHost:onPort:viaInterface:withTimeout:)` throws, and `.noUsableAddress` when
    ///   the address's family is disabled or the interface has no address of it.
    public func connect(
        toAddress address: SocketAddress, viaInterface interface: String? = nil, withTimeout timeout: TimeInterval = 30
    ) throws(AsyncSocketError) {
        guard address.port != 0 else { throw .badParameter("connect", "nobody listens on port 0") }
        let isInternet = address.family.isInternet
        guard isInternet || interface == nil else {
            throw .badParameter("connect", "\(address) is on no interface: leave the interface out")
        }
        let policy = isInternet ? try routePolicy(via: interface) : RoutePolicy()
        if !isInternet || proxy == nil {
            do throws(NoRoute) {
                _ = try policy.routes(to: [address])
            } catch {
                throw AsyncSocketError(error, destination: "\(address)")
            }
        }
        try connect(to: .address(address), policy: policy, timeout: timeout)
    }

    /// Connects to the Unix-domain socket at a path.
    ///
    /// Returns at once; then the delegate gets `socket(_:didConnectToPath:)` or
    /// `socketDidDisconnect(_:withError:)`.
    ///
    /// - Parameters:
    ///   - path: 1 to 107 bytes of UTF-8 (unix(7)), no zero among them; it is never cut.
    ///   - timeout: Seconds, 30 unless you say otherwise; negative: no limit.
    /// - Throws: `.badConfiguration` when the socket is in use, `.badParameter` for another path.
    public func connect(toPath path: String, withTimeout timeout: TimeInterval = 30) throws(AsyncSocketError) {
        try connect(toAddress: SocketAddress.ofSocket(at: path, "connect"), withTimeout: timeout)
    }

    // MARK: - Inside

    private func connect(to target: Destination.Target, policy: RoutePolicy, timeout: TimeInterval) throws(AsyncSocketError) {
        guard !timeout.isNaN else { throw .badParameter("connect", "the timeout is not a number") }
        let destination = try destination(target, policy)
        let connection = try makeConnection("connect")
        connection.post(.connect(destination, timeout: timeout))
    }

    /// Straight there or, with a proxy, to the proxy. Only IP has proxies.
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

    /// Who is asked for the addresses of hosts: for tests that need a host with addresses of their choosing.
    package var resolver: Resolver {
        get { configuration.resolver }
        set { configure { $0.resolver = newValue } }
    }

    /// The seconds for which a write that has failed lets bytes that came before the end be read: for tests,
    /// which must not depend on a quiet machine.
    package var failedWriteGrace: TimeInterval {
        get { configuration.failedWriteGrace }
        set { configure { $0.failedWriteGrace = newValue } }
    }

    /// Puts a socket that has not been used yet on a loop: for tests that look at the loop.
    package func stay(on loop: EventLoop) {
        state.withLock { $0.loop = loop }
    }

    /// A connection for this socket, on a loop, that has not been told yet what to do.
    func makeConnection(
        _ operation: String, as role: ConnectionLog.Role = .client
    ) throws(AsyncSocketError) -> StreamConnection {
        let connection = StreamConnection(for: self, as: role, loop: try chooseLoop(operation))
        // Before anybody can reach it: a `disconnect()` from elsewhere finds a connection that can tell of
        // its end.
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
        do throws(SystemError) {
            let loop = try EventLoop.next()
            return state.withLock { state in
                let chosen = state.loop ?? loop
                state.loop = chosen
                return chosen
            }
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}

extension SocketAddress {
    /// The Unix-domain socket at a path that the caller has given.
    static func ofSocket(at path: String, _ operation: String) throws(AsyncSocketError) -> SocketAddress {
        if let address = SocketAddress(unixPath: path) { return address }
        let fault = path.utf8.contains(0) ? "this one contains a zero" : "this one has \(path.utf8.count)"
        throw .badParameter(operation, "the path of a socket has 1 to \(longestUnixPath) bytes, and \(fault): \(path)")
    }
}

extension SocketConfiguration {
    /// The families that may be used: at least one.
    func enabledFamilies(_ operation: String) throws(AsyncSocketError) -> AddressFamilies {
        var families: AddressFamilies = []
        if isIPv4Enabled { families.insert(.ipv4) }
        if isIPv6Enabled { families.insert(.ipv6) }
        guard !families.isEmpty else {
            throw .badConfiguration(operation, "IPv4 and IPv6 are both disabled: enable one of them")
        }
        return families
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
                message: "the interface \(text) has no address of a family that is enabled")
        }
        return interface
    }
}

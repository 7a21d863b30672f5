public import FoundationEssentials
internal import SocketBuffers
package import SocketCore

extension AsyncSocket {
    /// Connects to a host.
    ///
    /// Returns immediately. The socket resolves the name and tries its addresses according to RFC 8305
    /// ("Happy Eyeballs"): the preferred family first, then alternating between the families. Each attempt
    /// starts `alternateAddressDelay` after the previous one, or as soon as an attempt fails. The first
    /// attempt to succeed wins, and the remaining attempts are cancelled. The delegate then receives
    /// `socket(_:didConnectToHost:port:)`, or `socketDidDisconnect(_:withError:)` with `.hostNotFound`,
    /// `.noUsableAddress`, `.connectFailed` (its message names up to 16 addresses), `.connectionReset` if the
    /// peer accepts the connection and resets it immediately, or `.connectTimeout`. You may queue reads,
    /// writes and `startTLS` before that. `disconnect()` cancels the attempt at any time. `isIPv4Enabled` and
    /// similar settings are read when you call this.
    ///
    /// With a `proxy`, all of this applies to the connection to the proxy. The proxy resolves the host and
    /// connects to it.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address in dotted-decimal form, or an IPv6 address, optionally in brackets
    ///     (`[::1]`). `localhost` always means this machine, regardless of name servers (RFC 6761). Any other
    ///     text with a numeric last label, such as the shorthands `127.1` and `0x7f.0.0.1`, is rejected,
    ///     because programs interpret it differently.
    ///   - port: A TCP port, 1 to 65535.
    ///   - interface: The local interface, as a name (`eth0`), an address (`192.0.2.7`, `2001:db8::7`) or
    ///     `localhost`, optionally followed by a colon and a local port (`eth0:4000`, `192.0.2.7:4000`,
    ///     `[2001:db8::7]:4000`, `:4000`). The socket is bound to the interface's address in the host's
    ///     address family. The kernel's routing table still selects the route. A link-local host without a
    ///     scope uses the scope of this interface. If `nil`, any interface is used.
    ///   - timeout: The time limit in seconds for resolving and connecting together, measured from the call;
    ///     30 by default. A negative value means no limit.
    /// - Throws: `.badConfiguration` if the socket is in use or both families are disabled, `.badParameter`
    ///   for text that is not a host (empty, with a zero byte, longer than 255 bytes, a shorthand), port 0 or
    ///   an unknown interface, `.noUsableAddress` for an interface without an address of an enabled family,
    ///   or `.system` if the interfaces cannot be listed. With a proxy, also `.badParameter` for a host, a
    ///   proxy or credentials that cannot be sent in a request to the proxy (RFC 1928, RFC 9110): a name may
    ///   contain only letters, digits, hyphens, underscores and dots.
    public func connect(
        toHost host: String, onPort port: UInt16, viaInterface interface: String? = nil, withTimeout timeout: TimeInterval = 30
    ) throws(AsyncSocketError) {
        try connect(to: destination(host, port, via: interface), timeout: timeout)
    }

    /// Connects to an address: IPv4, IPv6, a Unix-domain path or abstract name, or a port of a virtual
    /// machine.
    ///
    /// Returns immediately. The delegate then receives `socket(_:didConnectToHost:port:)`, or
    /// `socket(_:didConnectToPath:)` for a path, or `socketDidDisconnect(_:withError:)`. For an abstract name
    /// or a virtual machine, the host is the description of the address and the port is 0. A `proxy` is used
    /// for IPv4 and IPv6 addresses only.
    ///
    /// - Parameters:
    ///   - address: The address to connect to. If the backlog of a Unix-domain listener is full, the socket
    ///     retries until there is room, just as a blocking connect(2) would wait.
    ///   - interface: See `connect(toHost:onPort:viaInterface:withTimeout:)`. Must be `nil` for an address
    ///     that is neither IPv4 nor IPv6.
    ///   - timeout: The time limit in seconds, measured from the call; 30 by default. A negative value means
    ///     no limit.
    /// - Throws: The errors of `connect(toHost:onPort:viaInterface:withTimeout:)`, and `.noUsableAddress` if
    ///   the address's family is disabled or the interface has no address of that family.
    public func connect(
        toAddress address: SocketEndpoint, viaInterface interface: String? = nil, withTimeout timeout: TimeInterval = 30
    ) throws(AsyncSocketError) {
        try connect(to: destination(address, via: interface), timeout: timeout)
    }

    /// Connects to the Unix-domain socket at a path.
    ///
    /// Returns immediately. The delegate then receives `socket(_:didConnectToPath:)` or
    /// `socketDidDisconnect(_:withError:)`.
    ///
    /// - Parameters:
    ///   - path: 1 to 107 bytes of UTF-8 without a zero byte (unix(7)). The path is never truncated.
    ///   - timeout: The time limit in seconds, measured from the call. A negative value means no limit.
    /// - Throws: `.badConfiguration` if the socket is in use, `.badParameter` for an invalid path.
    public func connect(toPath path: String, withTimeout timeout: TimeInterval) throws(AsyncSocketError) {
        try connect(toAddress: SocketEndpoint.ofSocket(at: path, .connect), withTimeout: timeout)
    }

    // MARK: - Internals

    /// Validates the host and the port, and returns the destination, which is reached through the proxy if
    /// one is set.
    func destination(
        _ host: String, _ port: some BinaryInteger, via interface: String?
    ) throws(AsyncSocketError) -> Destination {
        try AsyncSocketError.checkHost(host, .connect)
        let port = try AsyncSocketError.port(port, .connect)
        guard port > 0 else { throw .badParameter(.connect, "the port must be from 1 to 65535, but is 0") }
        return try destination(.host(host, port: port), routePolicy(via: interface))
    }

    func destination(
        _ address: SocketEndpoint, via interface: String?
    ) throws(AsyncSocketError) -> Destination {
        guard address.port != 0 else { throw .badParameter(.connect, "the port must be from 1 to 65535, but is 0") }
        let isInternet = address.family.isInternet
        guard isInternet || interface == nil else {
            throw .badParameter(.connect, "\"\(address)\" cannot be reached through a network interface: omit the interface")
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
        guard !timeout.isNaN else { throw .badParameter(.connect, "the timeout must be a number of seconds, but is NaN") }
        try makeConnection(to: destination).post(.connect(destination, timeout: timeout))
    }

    /// Creates a client's connection, idle until a message is posted.
    func makeConnection(to destination: Destination) throws(AsyncSocketError) -> StreamConnection {
        let connection = try makeConnection(.connect)
        connection.record.withLock { record in
            record.claims.host = destination.host
            record.claims.endpoint = CopyOnWrite(destination.endpoint)
        }
        return connection
    }

    /// Returns a destination for the target itself or, with a proxy, for the proxy. Only IP connections use
    /// proxies.
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
        let families = try configuration.enabledFamilies(.connect)
        var policy = RoutePolicy(
            families: families, preferredFamily: configuration.isIPv4PreferredOverIPv6 ? .ipv4 : .ipv6,
            attemptDelay: configuration.alternateAddressDelay)
        if let text, !text.isEmpty { policy.interface = try LocalInterface.named(text, .connect, families: families) }
        return policy
    }

    /// Resolves host names. Tests replace it to choose the addresses of a host.
    package var resolver: Resolver {
        get { configuration.resolver }
        set { configure { $0.resolver = newValue } }
    }

    /// The grace period after a failed write, in seconds, during which bytes received before the failure may
    /// still be read. Tests change it, so that their results do not depend on the load of the machine.
    package var failedWriteGrace: TimeInterval {
        get { configuration.failedWriteGrace }
        set { configure { $0.failedWriteGrace = newValue } }
    }

    /// Assigns an unused socket to a loop, for tests that inspect the loop.
    package func stay(on loop: SocketEventLoop) {
        state.withLock { $0.loop = loop }
    }

    /// Creates a connection for this socket on its loop, idle until a message is posted.
    func makeConnection(
        _ operation: AsyncSocketError.Operation, as role: ConnectionRole = .client
    ) throws(AsyncSocketError) -> StreamConnection {
        let connection = StreamConnection(for: self, as: role, loop: try chooseLoop(operation))
        // Registered before other threads can access the connection: if another thread calls `disconnect()`,
        // the connection must be able to deliver its last event.
        connection.register()
        do throws(AsyncSocketError) {
            try occupy(operation, with: .connection(connection))
        } catch {
            connection.deregister()
            throw error
        }
        return connection
    }

    func chooseLoop(_ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> SocketEventLoop {
        if let loop = state.withLock({ $0.loop }) { return loop }
        let loop = try SocketEventLoop.next(for: operation)
        return state.withLock { state in
            let chosen = state.loop ?? loop
            state.loop = chosen
            return chosen
        }
    }
}

extension SocketEndpoint {
    static func ofSocket(at path: String, _ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> SocketEndpoint {
        if let address = SocketEndpoint(unixPath: path) { return address }
        let fault = path.utf8.contains(0) ? "contains a zero byte" : "is \(path.utf8.count) bytes long"
        throw .badParameter(
            operation,
            "a socket path must be 1 to \(maximumUnixPathBytes) bytes long and contain no zero bytes, but \"\(path)\" \(fault)")
    }
}

extension AddressFamilies {
    init(isIPv4Enabled: Bool, isIPv6Enabled: Bool, _ operation: AsyncSocketError.Operation) throws(AsyncSocketError) {
        self = []
        if isIPv4Enabled { insert(.ipv4) }
        if isIPv6Enabled { insert(.ipv6) }
        guard !isEmpty else {
            throw .badConfiguration(operation, "IPv4 and IPv6 are both disabled: enable one of them")
        }
    }
}

extension LocalInterface {
    /// Returns the interface that `text` names, which must have an address of one of `families`.
    static func named(
        _ text: String, _ operation: AsyncSocketError.Operation, families: AddressFamilies
    ) throws(AsyncSocketError) -> LocalInterface {
        let interface: LocalInterface
        do throws(InterfaceError) {
            interface = try LocalInterface(text)
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
        guard interface.addresses.contains(where: { families.allows($0.family) }) else {
            let disabled = AsyncSocketError.families(of: interface.addresses)
            throw AsyncSocketError(
                .noUsableAddress, fault: .caller, operation: operation,
                message: "the interface \"\(text)\" has only \(disabled) addresses, but \(disabled) is disabled: enable it")
        }
        return interface
    }
}

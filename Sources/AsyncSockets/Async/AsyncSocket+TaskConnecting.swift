internal import FoundationEssentials
internal import SocketBuffers
public import SocketCore
public import SocketTLS

// Connections for tasks.
extension AsyncSocket {
    /// Connects to a host and, with `tls`, makes the connection secure before any byte of yours is sent.
    ///
    /// Returns when the connection is established, and the peer trusted. It resolves the name, tries all its
    /// addresses and asks a `proxy` as `connect(toHost:onPort:viaInterface:withTimeout:)` does. A cancelled
    /// task frees everything.
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address.
    ///   - port: A TCP port, 1 to 65535, of any type of integer.
    ///   - interface: Where the connection leaves from; nil: any interface.
    ///   - proxy: The way to the host; it becomes the socket's `proxy`. Nil: the socket's `proxy`, if it
    ///     has one.
    ///   - tls: How to use TLS from the first byte: `.client` for a server whose certificate is for `host`.
    ///     Nil: not at all, or later by `startTLS(settings:trust:)`.
    ///   - trust: Decides about the server's certificate, as in `startTLS(settings:trust:)`.
    ///   - timeout: The time for resolving and connecting, 30 seconds by default; nil: no limit. The TLS
    ///     handshake has its own, `TLSSettings.handshakeTimeout`.
    /// - Throws: `CancellationError` when the task is cancelled, or an `AsyncSocketError`: what
    ///   `connect(toHost:onPort:viaInterface:withTimeout:)` throws or delivers, and what
    ///   `startTLS(settings:trust:)` throws; `.badParameter` for settings of a server, and for `trust`
    ///   without `tls`.
    public nonisolated(nonsending) func connect(
        to host: String, port: some BinaryInteger, via interface: String? = nil, proxy: Proxy? = nil,
        tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(proxy, tls, trust, timeout) { try destination(host, port, via: interface) }
    }

    /// Connects to an address: IPv4, IPv6, a Unix-domain path or abstract name, or a port of a virtual
    /// machine. See `connect(to:port:via:proxy:tls:trust:timeout:)`.
    public nonisolated(nonsending) func connect(
        to address: SocketAddress, via interface: String? = nil, proxy: Proxy? = nil, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(proxy, tls, trust, timeout) { try destination(address, via: interface) }
    }

    /// Connects to the Unix-domain socket at a path. See `connect(to:port:via:proxy:tls:trust:timeout:)`.
    public nonisolated(nonsending) func connect(
        toPath path: String, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(nil, tls, trust, timeout) {
            try destination(SocketAddress.ofSocket(at: path, "connect"), via: nil)
        }
    }

    private nonisolated(nonsending) func connect(
        _ proxy: Proxy?, _ tls: TLSClientSettings?, _ trust: (@Sendable (PeerTrust) async throws -> Bool)?,
        _ timeout: Duration?, to makeDestination: () throws -> Destination
    ) async throws {
        let (connection, waiter) = try askToConnect(proxy, tls, hasTrust: trust != nil, timeout, to: makeDestination)
        try await waiter.value(from: connection)
        if let handshake = try askForWantedTLS(tls, hasTrust: trust != nil) { _ = try await handshake.session(trust) }
    }

    // The parts that do not wait are functions of their own: what they need for the settings is on the stack
    // of the thread, and not in the memory of the task, which keeps it until its end.

    @inline(never)
    private func askToConnect(
        _ proxy: Proxy?, _ tls: TLSClientSettings?, hasTrust: Bool, _ timeout: Duration?,
        to makeDestination: () throws -> Destination
    ) throws -> (StreamConnection, DoneWaiter) {
        let limit = OperationLimit(nil)
        try limit.check(.connect)
        try AsyncSocketError.check(tls, hasTrust: hasTrust)
        if let proxy { self.proxy = proxy }
        let destination = try makeDestination()
        if let tls { try AsyncSocketError.check(tls.values.expecting(destination.host)) }
        let connection = try makeConnection(to: destination)
        let waiter = DoneWaiter(.connect, limit)
        connection.post(.connect(destination, timeout: timeout.map { max($0.inSeconds, 0) } ?? -1, waiter: waiter))
        return (connection, waiter)
    }

    @inline(never)
    private func askForWantedTLS(_ tls: TLSClientSettings?, hasTrust: Bool) throws -> AwaitedHandshake? {
        guard let tls else { return nil }
        return try askForTLS(tls, hasTrust: hasTrust)
    }

    // MARK: - Scopes

    /// Connects, calls `body` with the socket, and closes the connection on every way out.
    ///
    /// ```swift
    /// let greeting = try await AsyncSocket.withConnection(to: "mail.example.org", port: 993, tls: .client) {
    ///     try await $0.readLine()
    /// }
    /// ```
    ///
    /// When `body` returns, the connection closes in order (`close(timeout:)`); when it throws, at once.
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address.
    ///   - port: A TCP port, 1 to 65535, of any type of integer.
    ///   - interface: Where the connection leaves from; nil: any interface.
    ///   - proxy: The way to the host; nil: the socket's `proxy`, if `configure` sets one.
    ///   - tls: How to use TLS from the first byte; nil: not at all, or later.
    ///   - trust: Decides about the server's certificate.
    ///   - timeout: The time for resolving and connecting, 30 seconds by default; nil: no limit.
    ///   - executor: Where `body` runs, unless it is isolated to an actor: on the connection's event loop by
    ///     default, which is fastest. Nil: where the caller runs. For work that computes for long or blocks,
    ///     `.custom(globalConcurrentExecutor)`: the caller may run on a loop too.
    ///   - configure: Sets what the socket needs before it connects: options, a logger.
    ///   - body: Uses the connection.
    /// - Returns: What `body` returns.
    /// - Throws: What `connect(to:port:via:proxy:tls:trust:timeout:)`, `configure` and `body` throw.
    public nonisolated(nonsending) static func withConnection<Result>(
        to host: String, port: some BinaryInteger, via interface: String? = nil, proxy: Proxy? = nil,
        tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncSocket()
        try configure(socket)
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(
                to: host, port: port, via: interface, proxy: proxy, tls: tls, trust: trust, timeout: timeout)
            return try await socket.closing(after: body)
        }
    }

    /// Connects to an address, calls `body` with the socket, and closes the connection on every way out: see
    /// `withConnection(to:port:via:proxy:tls:trust:timeout:executor:configure:_:)`.
    public nonisolated(nonsending) static func withConnection<Result>(
        to address: SocketAddress, via interface: String? = nil, proxy: Proxy? = nil, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncSocket()
        try configure(socket)
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(to: address, via: interface, proxy: proxy, tls: tls, trust: trust, timeout: timeout)
            return try await socket.closing(after: body)
        }
    }

    /// Connects to the Unix-domain socket at a path, calls `body` with the socket, and closes the connection
    /// on every way out: see `withConnection(to:port:via:proxy:tls:trust:timeout:executor:configure:_:)`.
    public nonisolated(nonsending) static func withConnection<Result>(
        toPath path: String, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncSocket()
        try configure(socket)
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(toPath: path, tls: tls, trust: trust, timeout: timeout)
            return try await socket.closing(after: body)
        }
    }

    // MARK: - One connection after the other

    /// Connections to a host, one after the other: when the body of the loop is over, it connects again.
    ///
    /// ```swift
    /// for try await socket in AsyncSocket.reconnecting(to: "chat.example.org", port: 6697, tls: .client) {
    ///     do { try await converse(on: socket) } catch { log("\(error)") }
    /// }
    /// ```
    ///
    /// Each element is a connection that is established and, with `tls`, secure. It ends at once when the
    /// loop asks for the next one or is left; to end it in order, call `close(timeout:)` in the body. The
    /// loop makes the first attempt at once. After a failure, and after a connection, it waits as `backOff`
    /// says; a connection that has lasted longer than `backOff.maximum` takes it back to the minimum.
    ///
    /// The loop throws when retrying cannot help: on cancellation, at a deadline, when `configure`, `trust`
    /// or `onFailure` throws, and after mistakes of the caller such as a bad port. After any other error it
    /// connects again, even if a certificate was rejected, because the server may replace it.
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address. A name is resolved before each attempt.
    ///   - port: A TCP port, 1 to 65535, of any type of integer.
    ///   - interface: Where the connections leave from; nil: any interface.
    ///   - proxy: The way to the host; nil: the socket's `proxy`, if `configure` sets one.
    ///   - tls: How to use TLS from the first byte; nil: not at all, or later.
    ///   - trust: Decides about the server's certificate.
    ///   - timeout: The time of each attempt for resolving and connecting, 30 seconds by default; nil: no
    ///     limit.
    ///   - backOff: The time between attempts, from half a second to a minute by default.
    ///   - configure: Sets what each socket needs before it connects: options, a logger.
    ///   - onFailure: Called with the error of each failed attempt and the delay before the next one, in a
    ///     separate task that the deadline cancels. If nil, one error of each kind is logged per second.
    /// - Returns: The connections, as an asynchronous sequence without an end.
    public static func reconnecting(
        to host: String, port: some BinaryInteger & Sendable, via interface: String? = nil, proxy: Proxy? = nil,
        tls: TLSClientSettings? = nil, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil,
        timeout: Duration? = .seconds(30), backOff: BackOff = .standard,
        configure: @escaping @Sendable (AsyncSocket) throws -> Void = { _ in },
        onFailure: (@Sendable (any Error, Duration) async throws -> Void)? = nil
    ) -> ReconnectingSockets {
        ReconnectingSockets(backOff: backOff, onFailure: onFailure) { socket in
            try ProgramError.mark { try configure(socket) }
            try await socket.connect(
                to: host, port: port, via: interface, proxy: proxy, tls: tls, trust: ProgramError.mark(trust), timeout: timeout)
        }
    }

    // MARK: - Executors

    /// Runs `body` on the executor that was chosen for the connection.
    nonisolated(nonsending) func run<Result>(
        on executor: ConnectionExecutor?, _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        guard let executor = executor?.taskExecutor(for: self) else { return try await body() }
        return try await ConnectionExecutor.run(on: executor, body)
    }
}

internal import FoundationEssentials
internal import SocketBuffers
public import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// Connects to a host and, with `tls`, secures the connection before any of your data is sent.
    ///
    /// Returns when the connection is established and the peer is trusted. The name is resolved, its
    /// addresses are tried, and a `proxy` is used as in `connect(toHost:onPort:viaInterface:withTimeout:)`.
    /// If the task is cancelled, all resources are released.
    ///
    /// - Parameters:
    ///   - host: A host name, or an IPv4 or IPv6 address.
    ///   - port: A TCP port from 1 to 65535, of any integer type.
    ///   - interface: The local interface to connect from. `nil` means any interface.
    ///   - proxy: The proxy to connect through, which becomes the socket's `proxy`. If `nil`, the socket's
    ///     current `proxy` is used, if set.
    ///   - tls: The settings for TLS from the first byte. Use `.client` for a server with a certificate for
    ///     `host`. If `nil`, the connection starts in plaintext, and you can call `startTLS(settings:trust:)`
    ///     later.
    ///   - trust: Decides whether to trust the server's certificate, as in `startTLS(settings:trust:)`.
    ///   - timeout: The time limit for resolving and connecting, 30 seconds by default. `nil` means no
    ///     limit. The TLS handshake has a separate limit, `TLSSettings.handshakeTimeout`.
    /// - Throws: `CancellationError` if the task is cancelled, or an `AsyncSocketError`: any error that
    ///   `connect(toHost:onPort:viaInterface:withTimeout:)` throws or delivers and any error of
    ///   `startTLS(settings:trust:)`. Throws `.badParameter` for server settings, and for `trust` without
    ///   `tls`.
    public nonisolated(nonsending) func connect(
        to host: String, port: some BinaryInteger, interface: String? = nil, proxy: SocketProxy? = nil,
        tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(proxy, tls, trust, timeout) { try destination(host, port, via: interface) }
    }

    /// Connects to an address: IPv4, IPv6, a Unix-domain path or abstract name, or a port of a virtual
    /// machine. See `connect(to:port:interface:proxy:tls:trust:timeout:)`.
    public nonisolated(nonsending) func connect(
        to address: SocketEndpoint, interface: String? = nil, proxy: SocketProxy? = nil, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(proxy, tls, trust, timeout) { try destination(address, via: interface) }
    }

    /// Connects to the Unix-domain socket at a path. See
    /// `connect(to:port:interface:proxy:tls:trust:timeout:)`.
    public nonisolated(nonsending) func connect(
        toPath path: String, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(nil, tls, trust, timeout) {
            try destination(SocketEndpoint.ofSocket(at: path, .connect), via: nil)
        }
    }

    private nonisolated(nonsending) func connect(
        _ proxy: SocketProxy?, _ tls: TLSClientSettings?, _ trust: (@Sendable (PeerTrust) async throws -> Bool)?,
        _ timeout: Duration?, to makeDestination: () throws -> Destination
    ) async throws {
        let (connection, waiter) = try askToConnect(proxy, tls, hasTrust: trust != nil, timeout, to: makeDestination)
        try await waiter.value(from: connection)
        if let tls { _ = try await AwaitedHandshake.begin(tls, on: self, hasTrust: trust != nil).session(trust) }
    }

    // The parts that do not suspend are separate functions. Their locals, such as the settings, then live on
    // the thread's stack instead of in the task's memory, which is kept until the task finishes.

    @inline(never)
    private func askToConnect(
        _ proxy: SocketProxy?, _ tls: TLSClientSettings?, hasTrust: Bool, _ timeout: Duration?,
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

    // MARK: - Scopes

    /// Connects, calls `body` with the socket, and closes the connection however `body` exits.
    ///
    /// ```swift
    /// let greeting = try await AsyncSocket.withConnection(to: "mail.example.org", port: 993, tls: .client) {
    ///     try await $0.readLine()
    /// }
    /// ```
    ///
    /// If `body` returns, the connection is closed in an orderly way, as with `close(timeout:)`. If `body`
    /// throws, the connection is closed immediately.
    ///
    /// - Parameters:
    ///   - host: A host name, or an IPv4 or IPv6 address.
    ///   - port: A TCP port from 1 to 65535, of any integer type.
    ///   - interface: The local interface to connect from. `nil` means any interface.
    ///   - proxy: The proxy to connect through. If `nil`, the `proxy` that `configure` sets is used, if any.
    ///   - tls: The settings for TLS from the first byte. If `nil`, the connection starts in plaintext.
    ///   - trust: Decides whether to trust the server's certificate.
    ///   - timeout: The time limit for resolving and connecting, 30 seconds by default. `nil` means no
    ///     limit.
    ///   - executor: Where `body` runs. If the caller or `body` is isolated to an actor, `body` runs on that
    ///     actor instead. The default is the connection's event loop, which is fastest. `nil` means where
    ///     the caller runs. For blocking or long-running work, use `.custom(globalConcurrentExecutor)`
    ///     instead of `nil`, because the caller may also run on an event loop.
    ///   - configure: Prepares the socket before it connects, for example with options or a logger.
    ///   - body: Uses the connection.
    /// - Returns: The value that `body` returns.
    /// - Throws: The errors of `connect(to:port:interface:proxy:tls:trust:timeout:)`, `configure` and `body`.
    public nonisolated(nonsending) static func withConnection<Result>(
        to host: String, port: some BinaryInteger, interface: String? = nil, proxy: SocketProxy? = nil,
        tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncSocket()
        try configure(socket)
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(
                to: host, port: port, interface: interface, proxy: proxy, tls: tls, trust: trust, timeout: timeout)
            return try await socket.closing(returning: body)
        }
    }

    /// Connects to an address, calls `body` with the socket, and closes the connection however `body` exits.
    /// See `withConnection(to:port:interface:proxy:tls:trust:timeout:executor:configure:_:)`.
    public nonisolated(nonsending) static func withConnection<Result>(
        to address: SocketEndpoint, interface: String? = nil, proxy: SocketProxy? = nil, tls: TLSClientSettings? = nil,
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncSocket()
        try configure(socket)
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(to: address, interface: interface, proxy: proxy, tls: tls, trust: trust, timeout: timeout)
            return try await socket.closing(returning: body)
        }
    }

    /// Connects to the Unix-domain socket at a path, calls `body` with the socket, and closes the connection
    /// however `body` exits. See
    /// `withConnection(to:port:interface:proxy:tls:trust:timeout:executor:configure:_:)`.
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
            return try await socket.closing(returning: body)
        }
    }

    // MARK: - Reconnecting

    /// Returns a sequence of connections to a host that reconnects after each iteration of the loop.
    ///
    /// ```swift
    /// for try await socket in AsyncSocket.reconnecting(to: "chat.example.org", port: 6697, tls: .client) {
    ///     do { try await converse(on: socket) } catch { log("\(error)") }
    /// }
    /// ```
    ///
    /// Each element is a connection that is established and, with `tls`, secure. The connection is closed
    /// immediately when the loop requests the next element or exits. For an orderly close, call
    /// `close(timeout:)` in the body. The first attempt is made immediately. After a failure, and after a
    /// connection has closed, the loop pauses as `backOff` specifies. A connection that lasts longer than
    /// `backOff.maximum` resets the delay to its minimum.
    ///
    /// The loop throws when retrying cannot help: on cancellation, at a deadline, when `configure`, `trust`
    /// or `onFailure` throws, and after mistakes by the caller, such as an invalid port. After any other
    /// error it reconnects, even if a certificate was rejected, because the server may replace it.
    ///
    /// - Parameters:
    ///   - host: A host name, or an IPv4 or IPv6 address. A name is resolved before each attempt.
    ///   - port: A TCP port from 1 to 65535, of any integer type.
    ///   - interface: The local interface to connect from. `nil` means any interface.
    ///   - proxy: The proxy to connect through. If `nil`, the `proxy` that `configure` sets is used, if any.
    ///   - tls: The settings for TLS from the first byte. If `nil`, the connection starts in plaintext.
    ///   - trust: Decides whether to trust the server's certificate.
    ///   - timeout: The time limit for resolving and connecting in each attempt, 30 seconds by default.
    ///     `nil` means no limit.
    ///   - backOff: The delay between attempts, from half a second to a minute by default.
    ///   - configure: Prepares each socket before it connects, for example with options or a logger.
    ///   - onFailure: Called with the error of each failed attempt and the delay before the next attempt, in
    ///     a separate task that the deadline cancels. If `nil`, one error of each kind is logged per second.
    /// - Returns: The connections, as an infinite asynchronous sequence.
    public static func reconnecting(
        to host: String, port: some BinaryInteger & Sendable, interface: String? = nil, proxy: SocketProxy? = nil,
        tls: TLSClientSettings? = nil, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil,
        timeout: Duration? = .seconds(30), backOff: BackOff = .standard,
        configure: @escaping @Sendable (AsyncSocket) throws -> Void = { _ in },
        onFailure: (@Sendable (any Error, Duration) async throws -> Void)? = nil
    ) -> ReconnectingSockets {
        ReconnectingSockets(backOff: backOff, onFailure: onFailure) { socket in
            try ProgramError.mark { try configure(socket) }
            try await socket.connect(
                to: host, port: port, interface: interface, proxy: proxy, tls: tls, trust: ProgramError.mark(trust),
                timeout: timeout)
        }
    }

    // MARK: - Executors

    nonisolated(nonsending) func run<Result>(
        on executor: ConnectionExecutor?, _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        guard let executor = executor?.taskExecutor(for: self) else { return try await body() }
        return try await ConnectionExecutor.run(on: executor, body)
    }
}

public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

// UDP for tasks.
extension AsyncUDPSocket {
    // MARK: - Connecting

    /// Connects to a host: see `connect(toHost:onPort:withTimeout:)`.
    ///
    /// Returns when the socket has its peer. A cancelled task leaves the socket without one.
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address.
    ///   - port: A UDP port, 1 to 65535, of any type of integer.
    ///   - timeout: The time for resolving, 30 seconds by default; nil: no limit.
    /// - Throws: `CancellationError`, or an `AsyncSocketError`: what the other method throws or delivers.
    public nonisolated(nonsending) func connect(
        to host: String, port: some BinaryInteger, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(to: target(host, port, "connect"), timeout)
    }

    /// Connects to an address: see `connect(to:port:timeout:)`.
    public nonisolated(nonsending) func connect(to address: SocketAddress) async throws {
        try await connect(to: target(address, "connect"), nil)
    }

    private nonisolated(nonsending) func connect(to target: DatagramTarget, _ timeout: Duration?) async throws {
        let limit = OperationLimit(timeout)
        try limit.check(.connect)
        let waiter = DoneWaiter(.connect, limit)
        try beginToConnect(to: target, -1, waiter)
        if let connection { try await waiter.value(from: connection) }
    }

    // MARK: - Sending

    /// Sends a datagram to the peer of a connected socket.
    ///
    /// Returns when the kernel has it, mostly without a suspension. That does not mean that it arrives.
    ///
    /// - Parameters:
    ///   - data: The bytes, at most 65,507; none is a datagram too.
    ///   - timeout: The time that this may take from now on; nil: no limit.
    /// - Throws: `CancellationError` when the task is cancelled; a datagram that waits is then removed.
    ///   Otherwise an `AsyncSocketError`, as in `send(_:withTimeout:tag:)`. The socket stays open.
    public nonisolated(nonsending) func send(_ data: Data, timeout: Duration? = nil) async throws {
        try await openConnection("send").send(data, to: .peer, OperationLimit(timeout))
    }

    /// Sends a datagram to an address: see `send(_:timeout:)`. A socket that is not in use is bound first.
    public nonisolated(nonsending) func send(
        _ data: Data, to address: SocketAddress, timeout: Duration? = nil
    ) async throws {
        try await send(data, to: target(address, "send"), timeout)
    }

    /// Sends a datagram to a host: see `send(_:timeout:)` and `send(_:toHost:port:withTimeout:tag:)`.
    public nonisolated(nonsending) func send(
        _ data: Data, to host: String, port: some BinaryInteger, timeout: Duration? = nil
    ) async throws {
        try await send(data, to: target(host, port, "send"), timeout)
    }

    /// Replies to a datagram, from the address that it came to: see `send(_:timeout:)`.
    public nonisolated(nonsending) func send(
        _ data: Data, inReplyTo datagram: Datagram, timeout: Duration? = nil
    ) async throws {
        try await send(data, to: reply(to: datagram), timeout)
    }

    private nonisolated(nonsending) func send(_ data: Data, to target: DatagramTarget, _ timeout: Duration?) async throws {
        try await openIfNeeded("send").send(data, to: target, OperationLimit(timeout))
    }

    // MARK: - Receiving

    /// The next datagram.
    ///
    /// Tasks get datagrams in the order in which they ask for them, and before the delegate does. The kernel
    /// keeps those that no task has asked for, as many as its buffer has room for.
    ///
    /// - Parameter timeout: The time that this may take from now on; nil: no limit.
    /// - Throws: `CancellationError` when the task is cancelled, which loses no datagram. Otherwise an
    ///   `AsyncSocketError`: `.readTimeout`, `.closed` when the socket is closed, `.badConfiguration` when it
    ///   is neither bound nor connected, `.deadlineExceeded` by `withDeadline(_:_:)`.
    public nonisolated(nonsending) func receive(timeout: Duration? = nil) async throws -> Datagram {
        try await openConnection("receive").receive(OperationLimit(timeout))
    }

    /// The datagrams as they come, until the socket is closed.
    ///
    /// ```swift
    /// for try await datagram in socket.datagrams {
    ///     try await socket.send(answer(datagram.data), inReplyTo: datagram)
    /// }
    /// ```
    public var datagrams: Datagrams { Datagrams(socket: self) }

    /// The datagrams of a socket.
    ///
    /// It ends when this side closes the socket, and with DTLS when the peer says that it closes. A loop that
    /// is left early loses nothing: what has not come out waits in the kernel. A cancelled task gets a
    /// `CancellationError`.
    public struct Datagrams: AsyncSequence, Sendable {
        /// An `AsyncSocketError` or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncUDPSocket

        /// Begins at the next datagram.
        public func makeAsyncIterator() -> Iterator { Iterator(socket: socket) }

        /// Receives one datagram after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let socket: AsyncUDPSocket

            /// The next datagram; nil after the end.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Datagram? {
                do {
                    return try await socket.receive()
                } catch let error as AsyncSocketError where error.code == .closed || error.code == .closedByPeer {
                    return nil
                }
            }
        }
    }

    // MARK: - Losses

    /// The reports of datagrams that had left and did not arrive, from this call on, until the socket is
    /// closed or the task is cancelled. A delegate gets them in `udpSocket(_:didFailToReach:dueToError:)`.
    ///
    /// ```swift
    /// for await failure in try socket.deliveryFailures() {
    ///     print(failure.address?.description ?? "somewhere", failure.error)
    /// }
    /// ```
    ///
    /// Most losses are not reported, and anyone on the way can forge a report. So `send`, `receive` and
    /// `datagrams` go on after one, and you decide what it means. The oldest 64 reports wait for a task that
    /// is behind; the rest is dropped.
    ///
    /// - Throws: `.badConfiguration` when the socket is neither bound nor connected, and otherwise why it has
    ///   closed.
    public func deliveryFailures() throws(AsyncSocketError) -> AsyncStream<DeliveryFailure> {
        let connection = try openConnection("deliveryFailures")
        let (failures, continuation) = AsyncStream.makeStream(
            of: DeliveryFailure.self, bufferingPolicy: .bufferingOldest(DeliveryFailureReader.limit))
        let reader = DeliveryFailureReader(continuation)
        continuation.onTermination = { [weak connection, weak reader] _ in
            if let connection, let reader { connection.post(.reportFailures(to: reader, false)) }
        }
        connection.post(.reportFailures(to: reader, true))
        return failures
    }

    // MARK: - Scopes

    /// Connects to a host, calls `body` with the socket, and closes it on every way out.
    ///
    /// ```swift
    /// let reply = try await AsyncUDPSocket.withConnection(to: "192.0.2.53", port: 53) { socket in
    ///     try await socket.send(query)
    ///     return try await socket.receive(timeout: .seconds(2)).data
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address.
    ///   - port: A UDP port, 1 to 65535, of any type of integer.
    ///   - timeout: The time for resolving, 30 seconds by default; nil: no limit.
    ///   - executor: Where `body` runs, unless it is isolated to an actor: on the socket's event loop by
    ///     default. Nil: where the caller runs. See `AsyncSocket.withConnection`.
    ///   - configure: Sets what the socket needs before it connects: options, a logger.
    ///   - body: Your code, which uses the socket.
    /// - Returns: What `body` returns.
    /// - Throws: The errors of `connect(to:port:timeout:)`, `configure` and `body`.
    public nonisolated(nonsending) static func withConnection<Result>(
        to host: String, port: some BinaryInteger, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncUDPSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncUDPSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncUDPSocket()
        try configure(socket)
        defer { socket.close() }
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(to: host, port: port, timeout: timeout)
            return try await body(socket)
        }
    }

    /// Binds a socket to a port, calls `body` with it, and closes it on every way out.
    ///
    /// - Parameters:
    ///   - port: The port; 0 lets the kernel choose a free one.
    ///   - interface: As for `bind(toPort:interface:)`; nil: all interfaces.
    ///   - executor: As for `withConnection(to:port:timeout:executor:configure:_:)`.
    ///   - configure: Sets what the socket needs before it is bound: options, a rate limit, a logger.
    ///   - body: Your code, which uses the socket.
    /// - Returns: What `body` returns.
    /// - Throws: The errors of `bind(toPort:interface:)`, `configure` and `body`, and `.badParameter` for a
    ///   number that no port has.
    public nonisolated(nonsending) static func withSocket<Result>(
        boundTo port: some BinaryInteger, interface: String? = nil, executor: ConnectionExecutor? = .eventLoop,
        configure: (AsyncUDPSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncUDPSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncUDPSocket()
        try configure(socket)
        try socket.bind(toPort: AsyncSocketError.port(port, "bind"), interface: interface)
        defer { socket.close() }
        return try await socket.run(on: executor) { () async throws -> Result in try await body(socket) }
    }

    private nonisolated(nonsending) func run<Result>(
        on executor: ConnectionExecutor?, _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        guard let executor else { return try await body() }
        return try await ConnectionExecutor.run(on: executor.taskExecutor(for: chooseLoop("executor")), body)
    }
}

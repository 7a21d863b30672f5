public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

// The methods for tasks.
extension AsyncUDPSocket {
    // MARK: - Connecting

    /// Connects to a host: see `connect(toHost:onPort:withTimeout:)`.
    ///
    /// Returns when the socket is connected. If the task is cancelled, the socket stays unconnected.
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address.
    ///   - port: A UDP port, 1 to 65535, of any integer type.
    ///   - timeout: The time limit for name resolution, 30 seconds by default. `nil` means no limit.
    /// - Throws: `CancellationError`, or the `AsyncSocketError` that `connect(toHost:onPort:withTimeout:)`
    ///   throws or delivers.
    public nonisolated(nonsending) func connect(
        to host: String, port: some BinaryInteger, timeout: Duration? = .seconds(30)
    ) async throws {
        try await connect(to: target(host, port, .connect), timeout)
    }

    /// Connects to an address: see `connect(to:port:timeout:)`.
    public nonisolated(nonsending) func connect(to address: SocketEndpoint) async throws {
        try await connect(to: target(address, .connect), nil)
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
    /// Returns when the kernel has accepted the datagram, usually without suspending. This does not mean that
    /// the datagram arrived.
    ///
    /// - Parameters:
    ///   - data: The payload, at most 65,507 bytes. It may be empty.
    ///   - timeout: The time limit, measured from the call. `nil` means no limit.
    /// - Throws: `CancellationError` if the task is cancelled, which removes a queued datagram. Otherwise an
    ///   `AsyncSocketError`, as in `send(_:withTimeout:tag:)`. The socket stays open.
    public nonisolated(nonsending) func send(_ data: Data, timeout: Duration? = nil) async throws {
        try await openConnection(.send).send(data, to: .peer, OperationLimit(timeout))
    }

    /// Sends a datagram to an address: see `send(_:timeout:)`. A socket that is not in use is bound first.
    public nonisolated(nonsending) func send(
        _ data: Data, to address: SocketEndpoint, timeout: Duration? = nil
    ) async throws {
        if let connection = connection(reaching: address) {
            return try await connection.send(data, to: .address(InternetAddress(address)), OperationLimit(timeout))
        }
        try await send(data, to: target(address, .send), timeout)
    }

    /// Sends a datagram to a host: see `send(_:timeout:)` and `send(_:toHost:port:withTimeout:tag:)`.
    public nonisolated(nonsending) func send(
        _ data: Data, to host: String, port: some BinaryInteger, timeout: Duration? = nil
    ) async throws {
        try await send(data, to: target(host, port, .send), timeout)
    }

    /// Sends a reply to a datagram's sender, from the local address that the datagram was sent to: see
    /// `send(_:timeout:)`.
    public nonisolated(nonsending) func send(
        _ data: Data, inReplyTo datagram: Datagram, timeout: Duration? = nil
    ) async throws {
        try await send(data, to: reply(to: datagram), timeout)
    }

    private nonisolated(nonsending) func send(_ data: Data, to target: DatagramTarget, _ timeout: Duration?) async throws {
        try await openIfNeeded(.send).send(data, to: target, OperationLimit(timeout))
    }

    // MARK: - Receiving

    /// Returns the next datagram, suspending the task until a datagram arrives.
    ///
    /// Tasks receive datagrams in the order of their calls, and before the delegate does. Datagrams that no
    /// task has requested stay in the kernel's receive buffer until it is full.
    ///
    /// - Parameter timeout: The time limit, measured from the call. `nil` means no limit.
    /// - Throws: `CancellationError` if the task is cancelled, which does not lose a datagram. Otherwise an
    ///   `AsyncSocketError`: `.readTimeout`, `.closed` if the socket is closed, `.badConfiguration` if the
    ///   socket is neither bound nor connected, `.deadlineExceeded` within `withDeadline(_:_:)`.
    public nonisolated(nonsending) func receive(timeout: Duration? = nil) async throws -> Datagram {
        try await openConnection(.receive).receive(OperationLimit(timeout))
    }

    /// The received datagrams in order of arrival, until the socket is closed.
    ///
    /// ```swift
    /// for try await datagram in socket.datagrams {
    ///     try await socket.send(answer(datagram.data), inReplyTo: datagram)
    /// }
    /// ```
    public var datagrams: Datagrams { Datagrams(socket: self) }

    /// An asynchronous sequence of a socket's received datagrams.
    ///
    /// The sequence finishes when the program closes the socket or, with DTLS, when the peer closes the
    /// connection. Breaking out of a loop loses no data: datagrams that were not returned stay in the
    /// kernel's buffer. If the task is cancelled, iteration throws `CancellationError`.
    public struct Datagrams: AsyncSequence, Sendable {
        /// An `AsyncSocketError` or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncUDPSocket

        /// Returns an iterator that starts at the next datagram.
        public func makeAsyncIterator() -> Iterator { Iterator(socket: socket) }

        /// Receives one datagram at a time.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let socket: AsyncUDPSocket

            /// Returns the next datagram, or `nil` at the end of the sequence.
            public nonisolated(nonsending) mutating func next(isolation actor: (any Actor)? = #isolation) async throws
                -> Datagram?
            {
                do {
                    return try await socket.receive()
                } catch let error as AsyncSocketError where error.code == .closed || error.code == .closedByPeer {
                    return nil
                }
            }
        }
    }

    // MARK: - Losses

    /// Returns a stream of reports about sent datagrams that were not delivered.
    ///
    /// ```swift
    /// for await failure in try socket.deliveryFailures() {
    ///     print(failure.address?.description ?? "somewhere", failure.error)
    /// }
    /// ```
    ///
    /// The stream starts when this method is called and finishes when the socket closes or the task is
    /// cancelled. A delegate receives these reports in `udpSocket(_:didFailToReach:dueToError:)`.
    ///
    /// Most losses are not reported, and any host on the network path can forge a report. So `send`,
    /// `receive` and `datagrams` continue after a report, and your code decides how to react. Up to 64 unread
    /// reports are buffered; when the buffer is full, new reports are dropped.
    ///
    /// - Throws: `.badConfiguration` if the socket is neither bound nor connected, and the socket's error if
    ///   it is closed.
    public func deliveryFailures() throws(AsyncSocketError) -> AsyncStream<DeliveryFailure> {
        let connection = try openConnection(.deliveryFailures)
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

    /// Connects to a host, calls `body` with the socket, and closes the socket however `body` exits.
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
    ///   - port: A UDP port, 1 to 65535, of any integer type.
    ///   - timeout: The time limit for name resolution, 30 seconds by default. `nil` means no limit.
    ///   - executor: Where `body` runs. If the caller or `body` is isolated to an actor, `body` runs on that
    ///     actor instead. Defaults to the socket's event loop. If `nil`, `body` runs where the caller runs.
    ///     See `AsyncSocket.withConnection`.
    ///   - configure: Configures the socket before it connects, for example its options and logger.
    ///   - body: Your code, which uses the socket.
    /// - Returns: The result of `body`.
    /// - Throws: The errors of `connect(to:port:timeout:)`, `configure` and `body`.
    public nonisolated(nonsending) static func withConnection<Result>(
        to host: String, port: some BinaryInteger, timeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, configure: (AsyncUDPSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncUDPSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncUDPSocket()
        try configure(socket)
        defer { socket.disconnect() }
        return try await socket.run(on: executor) { () async throws -> Result in
            try await socket.connect(to: host, port: port, timeout: timeout)
            return try await body(socket)
        }
    }

    /// Binds a socket to a port, calls `body` with the socket, and closes the socket however `body` exits.
    ///
    /// - Parameters:
    ///   - port: The port. If 0, the kernel chooses a free port.
    ///   - interface: The interface: see `bind(toPort:interface:)`. If `nil`, the socket is bound to all
    ///     interfaces.
    ///   - executor: See `withConnection(to:port:timeout:executor:configure:_:)`.
    ///   - configure: Configures the socket before it is bound, for example its options, rate limit and
    ///     logger.
    ///   - body: Your code, which uses the socket.
    /// - Returns: The result of `body`.
    /// - Throws: The errors of `bind(toPort:interface:)`, `configure` and `body`, and `.badParameter` for an
    ///   invalid port number.
    public nonisolated(nonsending) static func withSocket<Result>(
        boundTo port: some BinaryInteger, interface: String? = nil, executor: ConnectionExecutor? = .eventLoop,
        configure: (AsyncUDPSocket) throws -> Void = { _ in },
        _ body: nonisolated(nonsending) (AsyncUDPSocket) async throws -> Result
    ) async throws -> Result {
        let socket = AsyncUDPSocket()
        try configure(socket)
        try socket.bind(toPort: AsyncSocketError.port(port, .bind), interface: interface)
        defer { socket.disconnect() }
        return try await socket.run(on: executor) { () async throws -> Result in try await body(socket) }
    }

    private nonisolated(nonsending) func run<Result>(
        on executor: ConnectionExecutor?, _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        guard let executor else { return try await body() }
        return try await ConnectionExecutor.run(on: executor.taskExecutor(for: chooseLoop(.connect)), body)
    }
}

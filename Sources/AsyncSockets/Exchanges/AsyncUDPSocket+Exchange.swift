public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

extension AsyncUDPSocket {
    /// Sends a request and returns its reply. The request is sent again if no reply arrives in time.
    ///
    /// ```swift
    /// let reply = try await socket.exchange(query, with: server) { $0.data.prefix(2) == query.prefix(2) }
    /// ```
    ///
    /// Any number of tasks can use one socket at the same time. A datagram is passed to the oldest exchange
    /// that accepts it. Other datagrams are delivered as usual. If nothing is receiving, up to 64 KiB of them
    /// are kept for `receive(timeout:)`. Datagrams beyond that, or beyond the delegate's limit, are dropped
    /// and counted in `dropped`.
    ///
    /// UDP senders can forge their address. Put an unpredictable value into the request (RFC 5452), and
    /// compare it with the reply.
    ///
    /// - Parameters:
    ///   - request: The payload. The server may receive it several times, so it must be idempotent.
    ///   - address: The destination, which is also the only accepted sender.
    ///   - attempts: The maximum number of times to send the request, at least 1. The default is 3.
    ///   - timeout: The time limit for each attempt. The default is 2 seconds.
    ///   - isReply: Whether a datagram from `address` is the reply. It runs inside the socket like an
    ///     inline delegate, possibly for several datagrams, so it must be fast and must not block.
    /// - Returns: The reply.
    /// - Throws: `CancellationError` if the task is cancelled. Otherwise an `AsyncSocketError`:
    ///   `.readTimeout` after the last attempt (if the network reported delivery failures (ICMP), the message
    ///   gives their number and the last one, and `errno` is the last one's); or the errors of
    ///   `send(_:to:timeout:)` and `receive(timeout:)`.
    public nonisolated(nonsending) func exchange(
        _ request: Data, with address: SocketEndpoint, attempts: Int = 3, timeout: Duration = .seconds(2),
        matching isReply: @escaping @Sendable (_ datagram: Datagram) -> Bool
    ) async throws -> Datagram {
        guard attempts >= 1 else {
            throw AsyncSocketError.badParameter(.exchange, "attempts must be at least 1, but is \(attempts)")
        }
        let target = try target(address, .exchange)
        guard case .address(let peer, _) = target else { throw AsyncSocketError.notConnected }
        let connection = try openIfNeeded(.exchange)
        let exchange = Exchange(with: peer, isReply)
        connection.post(.exchanging(exchange, .begins))
        defer { connection.post(.exchanging(exchange, .ends)) }
        var last = AsyncSocketError.closed
        for _ in 1...attempts {
            do {
                return try await connection.attempt(exchange, request, to: target, OperationLimit(timeout))
            } catch let error as AsyncSocketError where error.code == .readTimeout {
                last = error
            }
        }
        if attempts > 1 { last.message += ", in any of \(attempts) attempts" }
        throw exchange.failures.withLock { $0 }.explain(last)
    }

    /// Sends a request to the peer of a connected socket and returns its reply: see
    /// `exchange(_:with:attempts:timeout:matching:)`.
    ///
    /// - Throws: The errors of that method, and `.badConfiguration` if the socket is not connected.
    public nonisolated(nonsending) func exchange(
        _ request: Data, attempts: Int = 3, timeout: Duration = .seconds(2),
        matching isReply: @escaping @Sendable (_ datagram: Datagram) -> Bool
    ) async throws -> Datagram {
        guard let peer = connectedAddress else { throw AsyncSocketError.notConnected }
        return try await exchange(request, with: peer, attempts: attempts, timeout: timeout, matching: isReply)
    }
}

extension DatagramConnection {
    /// Sends the request once, and returns the reply to this or an earlier attempt.
    fileprivate nonisolated(nonsending) func attempt(
        _ exchange: Exchange, _ request: Data, to target: DatagramTarget, _ limit: OperationLimit
    ) async throws -> Datagram {
        try await send(request, to: target, limit)
        let waiter = DatagramWaiter(.exchange, limit)
        post(.exchanging(exchange, .awaits(waiter)))
        return try await waiter.value(from: self)
    }
}

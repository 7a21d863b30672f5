internal import SocketBuffers
internal import SocketCore

/// How many bytes a relay has forwarded. See `AsyncSocket.relay(with:idleTimeout:)`.
public struct RelayTotals: Sendable, Hashable {
    /// The bytes that were read from the socket and written to the other socket.
    public let forwarded: Int
    /// The bytes that were read from the other socket and written to the socket.
    public let returned: Int
}

extension AsyncSocket {
    /// Forwards bytes between this connection and another in both directions, until both have ended.
    ///
    /// Returns when both peers have closed their sides in an orderly way and everything has been written. A
    /// peer that closes only its side keeps receiving: the end is forwarded as well, as a FIN or, with TLS, a
    /// close_notify. Each connection may use TLS. A connection is read only as fast as the other accepts the
    /// bytes, so a relay holds about 64 KiB for each direction, and a `writeHighWaterMark` in addition.
    ///
    /// If one connection fails or the task is cancelled, both are reset, so that neither peer takes the end for
    /// the end of the data.
    ///
    /// ```swift
    /// try await listener.run { client in
    ///     try await AsyncSocket.withConnection(to: "localhost", port: 8080) { backend in
    ///         _ = try await client.relay(with: backend, idleTimeout: .seconds(60))
    ///     }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - other: The other connection.
    ///   - idleTimeout: The relay fails if no byte is received or sent on either connection for that long. A
    ///     long download does not time out because the client sends nothing. `nil` means no limit.
    /// - Returns: The number of bytes in each direction.
    /// - Throws: The reason the first connection failed: the errors of `read(maxLength:timeout:)` and
    ///   `write(_:timeout:)`, `.idleTimeout`, or `CancellationError`. `.badParameter` if
    ///   `other` is this socket, and `.badConfiguration` if one of them is not in use.
    @discardableResult
    public nonisolated(nonsending) func relay(
        with other: AsyncSocket, idleTimeout: Duration? = nil
    ) async throws -> RelayTotals {
        guard other !== self else {
            throw AsyncSocketError.badParameter(.read, "a connection cannot be relayed to itself: pass another socket")
        }
        guard let here = operations, let there = other.operations else { throw Self.notInUse(.read) }
        let idleness = idleTimeout.map { RelayIdleness($0, here, there) }
        defer { idleness?.switchOff() }
        do {
            // In a group, because a failure in either direction ends the other.
            return try await withThrowingTaskGroup(of: RelayTotals.self) { directions in
                directions.addTask { RelayTotals(forwarded: try await forward(from: self, to: other), returned: 0) }
                directions.addTask { RelayTotals(forwarded: 0, returned: try await forward(from: other, to: self)) }
                return try await directions.reduce(RelayTotals(forwarded: 0, returned: 0)) {
                    RelayTotals(forwarded: $0.forwarded + $1.forwarded, returned: $0.returned + $1.returned)
                }
            }
        } catch {
            disconnect(.reset)
            other.disconnect(.reset)
            throw error
        }
    }
}

/// Forwards one direction, and its end.
private nonisolated(nonsending) func forward(from source: AsyncSocket, to destination: AsyncSocket) async throws -> Int {
    var count = 0
    while let bytes = try await source.read() {
        try await destination.write(bytes)
        count += bytes.count
    }
    destination.closeWriteStream()
    return count
}

/// Closes the connections of a relay if neither moves a byte for some time.
///
/// Each connection has a waiter, and the waiters share their counters. A waiter whose time has expired sees
/// the bytes of the other connection and starts again. So the connection that moved the last byte closes,
/// exactly `timeout` later.
private struct RelayIdleness {
    private let waiters: [(TaskOperations, IdleWaiter)]

    init(_ timeout: Duration, _ connections: TaskOperations...) {
        let counts = Locked([CarriedBytes](repeating: CarriedBytes(), count: connections.count))
        waiters = connections.enumerated().map { index, operations in
            let waiter = operations.endWhenIdle(timeout, intent: .reset) { own in
                counts.withLock { counts in
                    counts[index] = own
                    return counts.reduce(into: CarriedBytes()) {
                        $0.received &+= $1.received
                        $0.sent &+= $1.sent
                    }
                }
            }
            return (operations, waiter)
        }
    }

    func switchOff() {
        for (_, waiter) in waiters { waiter.switchOff() }
    }
}

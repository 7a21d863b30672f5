internal import SocketBuffers
internal import SocketCore

/// How many bytes a relay has forwarded. See `AsyncSocket.relay(with:idleTimeout:)`.
public struct RelayTotals: Sendable, Hashable {
    /// The bytes that were read from the socket and written to the other socket.
    public let forwarded: Int
    /// The bytes that were read from the other socket and written to the socket.
    public let returned: Int
}

/// Two connections that are forwarded to each other.
struct Relay: Sendable {
    private let first: AsyncSocket
    private let second: AsyncSocket

    init(_ first: AsyncSocket, _ second: AsyncSocket) {
        (self.first, self.second) = (first, second)
    }

    nonisolated(nonsending) func run(_ idleTimeout: Duration?) async throws -> RelayTotals {
        guard let here = first.operations, let there = second.operations else { throw AsyncSocket.notInUse(.read) }
        let idleness = idleTimeout.map { RelayIdleness($0, here, there) }
        defer { idleness?.switchOff() }
        do {
            // In a group, because a failure in either direction ends the other.
            return try await withThrowingTaskGroup(of: RelayTotals.self) { directions in
                directions.addTask { RelayTotals(forwarded: try await forward(from: first, to: second), returned: 0) }
                directions.addTask { RelayTotals(forwarded: 0, returned: try await forward(from: second, to: first)) }
                return try await directions.reduce(RelayTotals(forwarded: 0, returned: 0)) {
                    RelayTotals(forwarded: $0.forwarded + $1.forwarded, returned: $0.returned + $1.returned)
                }
            }
        } catch {
            first.disconnect(.reset)
            second.disconnect(.reset)
            throw error
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

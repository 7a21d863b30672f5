internal import SocketBuffers
internal import SocketCore

/// How many bytes a relay has forwarded. See `AsyncSocket.relay(with:idleTimeout:onFailure:)`.
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

    nonisolated(nonsending) func run(
        _ idleTimeout: Duration?, onFailure: ((any Error, AsyncSocket) -> Void)?
    ) async throws -> RelayTotals {
        guard let here = first.operations, let there = second.operations else { throw AsyncSocket.notInUse(.read) }
        for socket in [first, second] where socket.autoDisconnectOnClosedReadStream {
            throw AsyncSocketError.badConfiguration(
                .read, "a relay needs half-closed connections: set autoDisconnectOnClosedReadStream to false")
        }
        // First, because a connection that is idle before it is watched would not be reset.
        let watches = [(first, RelayWatch(of: here)), (second, RelayWatch(of: there))]
        let idleness = idleTimeout.map { RelayIdleness($0, here, there) }
        defer { idleness?.switchOff() }
        do {
            // In a group, because a failure of either connection cancels the rest.
            let totals = try await withThrowingTaskGroup(of: RelayTotals.self) { parts in
                parts.addTask { RelayTotals(forwarded: try await forward(from: first, to: second), returned: 0) }
                parts.addTask { RelayTotals(forwarded: 0, returned: try await forward(from: second, to: first)) }
                for (socket, watch) in watches {
                    parts.addTask {
                        do { try await watch.end() } catch { throw Failure(cause: error, socket: socket) }
                        return RelayTotals(forwarded: 0, returned: 0)
                    }
                }
                return try await parts.reduce(RelayTotals(forwarded: 0, returned: 0)) {
                    RelayTotals(forwarded: $0.forwarded + $1.forwarded, returned: $0.returned + $1.returned)
                }
            }
            // Not after a failure: the second connection may be about to close because it is idle too, and it
            // must be reset.
            for (_, watch) in watches { watch.switchOff() }
            return totals
        } catch {
            first.disconnect(.reset)
            second.disconnect(.reset)
            guard let failure = error as? Failure else { throw error }
            if !(failure.cause is CancellationError) { onFailure?(failure.cause, failure.socket) }
            throw failure.cause
        }
    }

    /// The error of a connection.
    private struct Failure: Error {
        let cause: any Error
        let socket: AsyncSocket
    }

    /// Forwards one direction, and its end.
    private nonisolated(nonsending) func forward(from source: AsyncSocket, to destination: AsyncSocket) async throws -> Int {
        var (count, current) = (0, source)
        do {
            while let bytes = try await source.read() {
                current = destination
                try await destination.write(bytes)
                (count, current) = (count + bytes.count, source)
            }
        } catch {
            throw Failure(cause: error, socket: current)
        }
        destination.closeWriteStream()
        return count
    }
}

/// Detects that a relayed connection has failed or closed, even while it has no pending read or write. A
/// watched connection is reset when it fails.
final class RelayWatch: OperationWaiter {
    private let connection: StreamConnection
    private let isOff = Locked(false)
    private let (ended, ending) = AsyncStream<Void>.makeStream()

    init(of operations: TaskOperations) {
        connection = operations.connection
        connection.post(.awaitEnd(self))
    }

    var deadline: Deadline? { nil }
    var lateError: any Error { AsyncSocketError.closed }
    var isAbandoned: Bool { isOff.withLock { $0 } }
    var resetsOnFailure: Bool { !isAbandoned }

    func switchOff() { isOff.withLock { $0 = true } }

    func complete(_ result: Result<Void, any Error>) { ending.finish() }

    /// Returns after an orderly end of both directions.
    ///
    /// - Throws: The reason the connection failed, or the reason queued bytes were dropped.
    nonisolated(nonsending) func end() async throws {
        for await _ in ended {}
        try Task.checkCancellation()
        if let lost = connection.record.withLock({ $0.snapshot.loss?.value.writes }) { throw lost.error }
        do {
            _ = try await TaskOperations(connection: connection).read(.anyBytes, 1, OperationLimit(nil))
        } catch let error as AsyncSocketError where error.isOrderlyEnd {}
    }
}

/// Closes the connections of a relay if neither moves a byte for some time.
///
/// Each connection has a waiter, and the waiters share their counters. A waiter whose time has expired sees
/// the bytes of the other connection and starts again. So the connection that moved the last byte closes,
/// `timeout` later.
private struct RelayIdleness {
    private let waiters: [(TaskOperations, IdleWaiter)]

    init(_ timeout: Duration, _ connections: TaskOperations...) {
        let counts = Locked([CarriedBytes](repeating: CarriedBytes(), count: connections.count))
        waiters = connections.enumerated().map { index, operations in
            let waiter = operations.endWhenIdle(timeout) { own in
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

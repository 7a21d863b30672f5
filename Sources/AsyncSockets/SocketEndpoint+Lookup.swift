internal import SocketBuffers
public import SocketCore

extension SocketEndpoint {
    /// Returns the addresses of a host, in the order of the system's resolver (RFC 6724). These are the
    /// addresses that `connect(toHost:onPort:)` would try.
    ///
    /// The lookup runs on a resolver thread. At most eight lookups run at the same time. A queued lookup is
    /// dropped if its task is cancelled.
    ///
    /// - Parameters:
    ///   - host: A name or an address: see `connect(toHost:onPort:)`.
    ///   - port: The port of the returned addresses, 0 to 65535.
    /// - Throws: `AsyncSocketError` with `.hostNotFound`, or with `.badParameter` if the host is not a valid
    ///   name or address, or the port is out of range; `CancellationError` if the task is cancelled.
    public static func lookUp(host: String, port: some BinaryInteger) async throws -> [SocketEndpoint] {
        try await lookUp(host: host, port: AsyncSocketError.port(port, .resolve), asking: .system)
    }

    /// Looks up the host with another resolver, for tests.
    package static func lookUp(host: String, port: UInt16, asking resolver: Resolver) async throws -> [SocketEndpoint] {
        try AsyncSocketError.checkHost(host, .resolve)
        let query = PendingLookup()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { query.begin(HostQuery(host: host, port: port), asking: resolver, $0) }
        } onCancel: {
            query.cancel()
        }
    }
}

/// A lookup that a task is waiting for, until the lookup completes or the task is cancelled.
private final class PendingLookup: Sendable {
    private typealias Waiter = CheckedContinuation<[SocketEndpoint], any Error>

    private struct State {
        var waiter: Waiter?
        var lookup: Resolver.Lookup?
        var isCancelled = false
    }

    private let state = Locked(State())

    func begin(_ query: HostQuery, asking resolver: Resolver, _ waiter: CheckedContinuation<[SocketEndpoint], any Error>) {
        let isCancelled = state.withLock { state in
            if !state.isCancelled { state.waiter = waiter }
            return state.isCancelled
        }
        if isCancelled { return waiter.resume(throwing: CancellationError()) }
        let lookup = resolver.resolve(query) { [self] answer in
            takeWaiter()?.resume(with: answer.mapError { AsyncSocketError($0) })
        }
        // The task was cancelled while the lookup was being started. No other code removes the lookup from
        // the queue.
        let isLate = state.withLock { state in
            state.lookup = lookup
            return state.isCancelled
        }
        if isLate { lookup?.cancel() }
    }

    func cancel() {
        let (waiter, lookup) = state.withLock { state in
            state.isCancelled = true
            defer { state.waiter = nil }
            return (state.waiter, state.lookup)
        }
        lookup?.cancel()
        waiter?.resume(throwing: CancellationError())
    }

    private func takeWaiter() -> Waiter? {
        state.withLock { state in
            defer { state.waiter = nil }
            return state.waiter
        }
    }
}

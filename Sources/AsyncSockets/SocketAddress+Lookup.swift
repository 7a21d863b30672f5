internal import SocketBuffers
public import SocketCore

extension SocketAddress {
    /// The addresses of a host, as the system's resolver orders them (RFC 6724): what
    /// `connect(toHost:onPort:)` would try.
    ///
    /// It runs on a thread of the resolver, which makes at most eight lookups at a time; one that waits is
    /// dropped when its task is cancelled.
    ///
    /// - Parameters:
    ///   - host: A name or an address, as `connect(toHost:onPort:)` takes them.
    ///   - port: The port that the addresses get, 0 to 65535.
    /// - Throws: `AsyncSocketError` with `.hostNotFound` or, for a host that is empty or not a name,
    ///   `.badParameter`; `CancellationError` when the task is cancelled.
    public static func lookUp(host: String, port: some BinaryInteger) async throws -> [SocketAddress] {
        try await lookUp(host: host, port: AsyncSocketError.port(port, "resolve"), asking: .system)
    }

    /// The same from another resolver, for tests.
    package static func lookUp(host: String, port: UInt16, asking resolver: Resolver) async throws -> [SocketAddress] {
        try AsyncSocketError.checkHost(host, "resolve")
        let query = PendingLookup()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { query.begin(HostQuery(host: host, port: port), asking: resolver, $0) }
        } onCancel: {
            query.cancel()
        }
    }
}

/// A lookup that a task waits for, until there is an answer or the task is cancelled.
private final class PendingLookup: Sendable {
    private typealias Waiter = CheckedContinuation<[SocketAddress], any Error>

    private struct State {
        var waiter: Waiter?
        var lookup: Resolver.Lookup?
        var isCancelled = false
    }

    private let state = Locked(State())

    func begin(_ query: HostQuery, asking resolver: Resolver, _ waiter: CheckedContinuation<[SocketAddress], any Error>) {
        let isCancelled = state.withLock { state in
            if !state.isCancelled { state.waiter = waiter }
            return state.isCancelled
        }
        if isCancelled { return waiter.resume(throwing: CancellationError()) }
        let lookup = resolver.resolve(query) { [self] answer in
            takeWaiter()?.resume(with: answer.mapError { AsyncSocketError($0) })
        }
        // Cancelled meanwhile: the task has gone on, and nothing else would take the lookup out of the queue.
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

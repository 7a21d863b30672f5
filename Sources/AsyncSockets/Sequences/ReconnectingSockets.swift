internal import SocketCore

/// A sequence of consecutive connections to a host: see
/// `AsyncSocket.reconnecting(to:port:interface:proxy:tls:trust:timeout:backOff:configure:onFailure:)`.
public struct ReconnectingSockets: AsyncSequence, Sendable {
    /// An `AsyncSocketError` caused by the caller, an error thrown by `configure`, `trust` or `onFailure`, or
    /// a `CancellationError`.
    public typealias Failure = any Error

    let backOff: BackOff
    /// If `nil`, failures are logged.
    let onFailure: (@Sendable (any Error, Duration) async throws -> Void)?
    let failures = FailureLog()
    let connect: @Sendable (AsyncSocket) async throws -> Void

    /// Returns an iterator, which does not connect until its first `next`. Iterators do not share
    /// connections.
    public func makeAsyncIterator() -> Iterator { Iterator(sockets: self) }

    /// Connects repeatedly.
    public struct Iterator: AsyncIteratorProtocol {
        private let sockets: ReconnectingSockets
        private let current = CurrentSocket()
        private var failures = 0
        private var isOver = false

        fileprivate init(sockets: ReconnectingSockets) { self.sockets = sockets }

        /// Closes the previous connection and returns the next one. Returns `nil` after an error was thrown.
        public mutating func next(
            isolation actor: isolated (any Actor)? = #isolation
        ) async throws -> AsyncSocket? {
            guard !isOver else { return nil }
            do {
                return try await connection(isolation: actor)
            } catch {
                isOver = true
                throw error
            }
        }

        private mutating func connection(isolation: isolated (any Actor)?) async throws -> AsyncSocket {
            if let lifetime = current.end() {
                failures = lifetime > sockets.backOff.maximum ? 1 : failures + 1
                try await OperationLimit(nil).pause(sockets.backOff.delay(afterFailures: failures))
            }
            while true {
                try OperationLimit(nil).check(.connect)
                let socket = AsyncSocket()
                do {
                    try await sockets.connect(socket)
                    current.begin(socket)
                    return socket
                } catch {
                    socket.disconnect(.abandoned)
                    try OperationLimit(nil).check(.connect)
                    if let error = error as? ProgramError { throw error.thrown }
                    guard let failure = error as? AsyncSocketError, !failure.isForGood else { throw error }
                    failures += 1
                    let delay = sockets.backOff.delay(afterFailures: failures)
                    try await sockets.report(failure, of: socket, before: delay)
                    try await OperationLimit(nil).pause(delay)
                }
            }
        }
    }
}

extension ReconnectingSockets {
    /// Reports a failed attempt. The next attempt follows after `delay`.
    fileprivate func report(_ error: AsyncSocketError, of socket: AsyncSocket, before delay: Duration) async throws {
        failures.note(error, of: socket.connectedAddress, in: .connecting, isHandled: onFailure != nil, socket.logger)
        guard let onFailure else { return }
        try await OperationLimit(nil).run(.connect) { try await onFailure(error, delay) }
    }
}

/// An error thrown by `configure` or `trust`. The loop rethrows it even if it is an `AsyncSocketError`, for
/// example from a network lookup in `trust`.
struct ProgramError: Error {
    let thrown: any Error

    static func mark(_ call: () throws -> Void) throws {
        do { try call() } catch { throw ProgramError(thrown: error) }
    }

    static func mark(
        _ decide: (@Sendable (PeerTrust) async throws -> Bool)?
    ) -> (@Sendable (PeerTrust) async throws -> Bool)? {
        guard let decide else { return nil }
        return { peer in
            do { return try await decide(peer) } catch { throw ProgramError(thrown: error) }
        }
    }
}

/// The current connection of a loop. Closed when the loop exits.
private final class CurrentSocket {
    private var socket: AsyncSocket?
    private var start = ContinuousClock.now

    func begin(_ socket: AsyncSocket) {
        self.socket = socket
        start = .now
    }

    /// Closes the connection, if any, and returns its lifetime.
    func end() -> Duration? {
        guard let socket else { return nil }
        socket.disconnect(.abandoned)
        self.socket = nil
        return start.duration(to: .now)
    }

    deinit { socket?.disconnect(.abandoned) }
}

extension OperationLimit {
    /// Waits for `delay`. Throws if the deadline expires first.
    fileprivate func pause(_ delay: Duration) async throws {
        let rest = deadline.map { Duration.seconds(max(0, $0.seconds(since: .now))) }
        try await Task.sleep(for: min(delay, rest ?? delay))
        try check(.connect)
    }
}

extension AsyncSocketError {
    /// Whether the same call would fail again. A name that is not found may be found later.
    fileprivate var isForGood: Bool {
        fault == .caller && code != .hostNotFound && code != .noUsableAddress
    }
}

/// The delay before a client reconnects.
///
/// The delay doubles with each failure, from `minimum` to `maximum`. The client waits for a random part of
/// the delay, between half and all of the delay, so that the clients of a restarted server do not all
/// reconnect at the same moment.
public struct BackOff: Sendable, Hashable {
    /// The delay after the first failure.
    public let minimum: Duration
    /// The longest delay.
    public let maximum: Duration

    /// A delay from half a second to a minute.
    public static let standard = BackOff(from: .milliseconds(500), to: .seconds(60))

    /// Creates a back-off policy.
    ///
    /// - Parameters:
    ///   - minimum: The delay after the first failure, at least one millisecond.
    ///   - maximum: The longest delay, at least `minimum` and at most a day.
    public init(from minimum: Duration, to maximum: Duration) {
        self.minimum = min(max(minimum, .milliseconds(1)), .seconds(86_400))
        self.maximum = min(max(maximum, self.minimum), .seconds(86_400))
    }

    /// Returns the delay before the next attempt. `failures` is the number of failures so far, at least 1.
    func delay(afterFailures failures: Int) -> Duration {
        var (delay, doublings) = (minimum, failures - 1)
        while doublings > 0, delay < maximum { (delay, doublings) = (delay + delay, doublings - 1) }
        return min(delay, maximum) * Double.random(in: 0.5...1)
    }
}

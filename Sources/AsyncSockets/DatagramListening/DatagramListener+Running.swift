// The rules in `SocketListener+Running.swift` also apply to peers.

internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

extension DatagramListener {
    /// Receives datagrams, and calls `body` with the socket of each peer in a separate task.
    ///
    /// The socket is ready for use: with `dtls`, the handshake is complete. When `body` returns, queued
    /// datagrams are sent and the socket closes. When `body` throws or its task is cancelled, the socket
    /// closes immediately. Errors of `body` and of handshakes affect only their peer.
    ///
    /// Returns after `close(timeout:)`, once the tasks of all peers have finished. If the task that calls
    /// this is cancelled, the listener stops accepting, cancels the tasks of all peers, and throws
    /// `CancellationError` once they have finished.
    ///
    /// - Parameters:
    ///   - executor: Where `body` runs. Defaults to the listener's event loop, which must not be blocked. If
    ///     `nil`, `body` runs where the caller runs or, if built with Swift 6.2, on the default executor. For
    ///     long computations or blocking work, use `.custom(globalConcurrentExecutor)`.
    ///   - onError: Receives the error and the socket of each peer that fails. It is called in the peer's
    ///     task. By default, errors are logged in the same way as by `SocketListener.run`.
    ///   - body: Serves a peer.
    /// - Throws: `CancellationError`; `.badConfiguration` if the listener is in use or has already been used;
    ///   `.system` if its descriptors cannot be watched, or if receiving fails. If retrying cannot help, that
    ///   error is thrown immediately; otherwise, it is thrown after retrying for about seven seconds. Each
    ///   peer's socket closes with the same error.
    @concurrent
    public func run(
        executor: ConnectionExecutor? = .eventLoop, onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)? = nil,
        _ body: nonisolated(nonsending) @escaping @Sendable (AsyncUDPSocket) async throws -> Void
    ) async throws {
        _ = try reception.begin(.run)
        try begin()
        let (preparation, hub) = (preparation, hub)
        await withTaskCancellationHandler {
            let service = PeerService(preparation, onError, body)
            await reception.serveArrivals(on: executor, allOnOneLoop: true, by: service)
        } onCancel: {
            stopAccepting()
            reception.cut()
        }
        try Task.checkCancellation()
        if let failure = hub.failure { throw failure }
    }

    private func begin() throws(AsyncSocketError) {
        do throws(SystemError) {
            try hub.start()
        } catch {
            // No task is accepting peers, so waiting tasks must be released here.
            stopAccepting()
            reception.end()
            queue.end()
            throw AsyncSocketError(error, operation: .watch)
        }
    }

    /// The sockets of the peers, for programs that give each socket a delegate or a task.
    ///
    /// ```swift
    /// for try await socket in listener.peers {
    ///     socket.setDelegate(handler, delegateQueue: queue)
    ///     try socket.beginReceiving()
    /// }
    /// ```
    ///
    /// Each socket is ready for use: with `dtls`, the handshake is complete. Your program owns the socket,
    /// which outlives the listener and closes at the latest when its last reference is released. If a peer
    /// fails before its socket is ready, the failure is logged at level `notice` and the socket is not
    /// returned. Otherwise this works like `SocketListener.connections`.
    public var peers: Peers { Peers(listener: self) }

    /// An asynchronous sequence of the sockets of a listener's peers.
    public struct Peers: AsyncSequence, Sendable {
        /// An `AsyncSocketError` or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let listener: DatagramListener

        /// Returns an iterator that continues with the next peer that has not been taken yet.
        public func makeAsyncIterator() -> Iterator { Iterator(listener: listener) }

        /// Returns one socket at a time.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let listener: DatagramListener

            /// Returns the socket of the next peer, or `nil` at the end of the sequence.
            public nonisolated(nonsending) mutating func next(isolation actor: (any Actor)? = #isolation) async throws
                -> AsyncUDPSocket?
            {
                try listener.acceptForQueue()
                if let socket = try await listener.queue.next() { return socket }
                if let failure = listener.hub.failure { throw failure }
                return nil
            }
        }
    }

    /// Starts accepting peers for the sequence, once.
    private func acceptForQueue() throws(AsyncSocketError) {
        guard try reception.begin(.connections) else { return }
        try begin()
        Task.detached { [reception, preparation, queue] in
            await reception.serveArrivals(on: .eventLoop, after: { _ in await queue.room() }, allOnOneLoop: true) { arrival, _ in
                if await preparation.makeReady(arrival, nil) { queue.put(arrival.socket) }
            }
            queue.end()
        }
    }
}

/// How `run` serves its peers.
private final class PeerService: ArrivalService {
    private let preparation: PeerPreparation
    private let onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)?
    private let body: nonisolated(nonsending) @Sendable (AsyncUDPSocket) async throws -> Void

    init(
        _ preparation: PeerPreparation, _ onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)?,
        _ body: nonisolated(nonsending) @escaping @Sendable (AsyncUDPSocket) async throws -> Void
    ) {
        (self.preparation, self.onError, self.body) = (preparation, onError, body)
    }

    nonisolated(nonsending) func serve(_ arrival: PeerArrival, on loop: SocketEventLoop) async {
        guard await preparation.makeReady(arrival, onError) else { return }
        let socket = arrival.socket
        do {
            try await body(socket)
            socket.disconnectAfterSending()
        } catch {
            socket.disconnect()
            preparation.report(error, of: arrival, in: .body, onError)
        }
    }
}

extension DatagramListener {
    /// Serves peers like `run(executor:onError:_:)`, and shuts down when the process receives a signal.
    ///
    /// The first of `signals` to arrive shuts the listener down as `close(timeout:)` does. For the second
    /// signal and `onShutdown`, see `SocketListener.run(untilSignals:…)`.
    ///
    /// - Parameters:
    ///   - signals: Signal numbers (signal(7)), such as `SIGTERM`.
    ///   - closeTimeout: The time limit for the peers, measured from the first signal. Defaults to 30
    ///     seconds; `nil` sets no limit.
    ///   - executor: See `run(executor:onError:_:)`.
    ///   - onError: Receives the error and the socket of each peer that fails.
    ///   - onShutdown: Called once, in a separate task, after the first signal has stopped accepting. This
    ///     method returns only after the closure has returned.
    ///   - body: Serves a peer.
    /// - Throws: The errors of `run(executor:onError:_:)`; `.badParameter` for a signal that cannot be
    ///   caught, such as `SIGKILL`; `.system` if the process has no free descriptors.
    @concurrent
    public func run(
        untilSignals signals: [Int32], closeTimeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)? = nil,
        onShutdown: (@Sendable () async -> Void)? = nil,
        _ body: nonisolated(nonsending) @escaping @Sendable (AsyncUDPSocket) async throws -> Void
    ) async throws {
        try await serve(untilSignals: signals, closeTimeout: closeTimeout, onShutdown: onShutdown) {
            try await self.run(executor: executor, onError: onError, body)
        }
    }
}

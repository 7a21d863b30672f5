// The rules of `SocketListener+Running.swift` hold for peers too.

internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

extension DatagramListener {
    /// Receives, and calls `body` with the socket of each peer in a task of its own.
    ///
    /// `body` gets a socket that is ready: with `dtls` it is secure. When `body` returns, the datagrams that
    /// wait are sent, and the socket closes; when it throws, or its task is cancelled, at once. Its errors,
    /// and errors of handshakes, end that peer only.
    ///
    /// Returns after `shutdown(within:)`, once all peers have ended. When the task that calls this is
    /// cancelled, accepting ends, the tasks of all peers are cancelled, and it throws `CancellationError`
    /// when they are over.
    ///
    /// - Parameters:
    ///   - executor: Where `body` runs: on the event loop of the listener by default, where nothing may
    ///     block. Nil: where the caller runs. For work that computes for long or blocks,
    ///     `.custom(globalConcurrentExecutor)`.
    ///   - onError: Gets the error of each peer that did not end in good order, and its socket. It is called
    ///     in the peer's task. Without it the errors are logged as `SocketListener.run` does.
    ///   - body: Serves a peer.
    /// - Throws: `CancellationError`, `.badConfiguration` when the listener is in use, or its use has ended,
    ///   and `.system` when its descriptors cannot be watched, or when the kernel refuses to receive:
    ///   immediately if retrying cannot help, otherwise after about seven seconds. Each peer's socket closes
    ///   with the same error.
    @concurrent
    public func run(
        executor: ConnectionExecutor? = .eventLoop, onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)? = nil,
        _ body: @escaping @Sendable (AsyncUDPSocket) async throws -> Void
    ) async throws {
        _ = try reception.begin(.run)
        try begin()
        let (preparation, hub) = (preparation, hub)
        await withTaskCancellationHandler {
            await reception.serveArrivals(on: executor, allOnOneLoop: true) { arrival, _ in
                guard await preparation.makeReady(arrival, onError) else { return }
                let socket = arrival.socket
                do {
                    try await body(socket)
                    socket.closeAfterSending()
                } catch {
                    socket.close()
                    preparation.report(error, of: arrival, in: .body, onError)
                }
            }
        } onCancel: {
            close()
            reception.cut()
        }
        try Task.checkCancellation()
        if let failure = hub.failure { throw failure }
    }

    private func begin() throws(AsyncSocketError) {
        do throws(SystemError) {
            try hub.start()
        } catch {
            // No task accepts: nothing else would end what waits for the listener.
            close()
            reception.end()
            queue.end()
            throw AsyncSocketError(error, operation: "watch")
        }
    }

    /// The sockets of the peers, one after the other, for a program that gives each of them a delegate, or a
    /// task of its own.
    ///
    /// ```swift
    /// for try await socket in listener.peers {
    ///     socket.setDelegate(handler, delegateQueue: queue)
    ///     try socket.beginReceiving()
    /// }
    /// ```
    ///
    /// Each is ready: with `dtls` it is secure. It is yours: it closes with the last reference to it at the
    /// latest, and outlives the listener. A peer that fails before it is ready never appears; it is logged at
    /// the level `notice`. Otherwise this is as `SocketListener.connections`.
    public var peers: Peers { Peers(listener: self) }

    /// The sockets of a listener's peers, as they come.
    public struct Peers: AsyncSequence, Sendable {
        /// An `AsyncSocketError`, or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let listener: DatagramListener

        /// Goes on with the next peer that has not been taken.
        public func makeAsyncIterator() -> Iterator { Iterator(listener: listener) }

        /// Brings one socket after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let listener: DatagramListener

            /// The socket of the next peer; nil after the end.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> AsyncUDPSocket? {
                try listener.acceptForQueue()
                if let socket = try await listener.queue.next() { return socket }
                if let failure = listener.hub.failure { throw failure }
                return nil
            }
        }
    }

    /// Begins to receive, once.
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

// Rules for the sequence of connections:
//  1. Accepting starts with the first use. The listener owns the accepted connections, so leaving a loop
//     early loses no connection, and the next loop continues with the remaining connections.
//  2. Each connection is prepared in its own task and is added to the queue when it is ready, so it never has
//     to wait for another connection's handshake.
//  3. While `SocketQueue.limit` sockets are ready, no more connections are taken, and at most one batch of
//     accepted connections is queued. Handshakes in progress do not count towards the limit, because
//     deliberately slow peers could otherwise block everyone else.

internal import SocketBuffers
internal import SocketCore

extension SocketListener {
    /// The accepted connections, for a program that passes each one to its own code. If a task per connection
    /// is enough, use `run` instead.
    ///
    /// ```swift
    /// for try await socket in listener.connections { pool.serve(socket) }
    /// ```
    ///
    /// Each socket is ready to use: its PROXY header has been read, and with `tls` its handshake is complete.
    /// The program owns the socket, which stays open when the listener closes. At the latest, the socket
    /// closes when the last reference to it is released. A slow handshake does not delay other connections. A
    /// connection that fails before it is ready is never delivered. Such failures are logged at level
    /// `notice`, at most one line per second for each kind of error.
    ///
    /// Accepting starts when the first element is requested. It pauses while 16 ready sockets have not been
    /// taken, and while `maximumConnections` connections are open. Leaving a loop loses no connection: the
    /// next loop continues with the remaining connections until the listener closes. Several tasks may
    /// iterate simultaneously, and each socket is delivered to one of them.
    ///
    /// After `close(timeout:)`, the sequence delivers the sockets that are ready, and the accepted
    /// connections when they are ready. Then it finishes. Sockets that are not taken close when the
    /// listener is released. A cancelled task receives a `CancellationError`, and the listener keeps
    /// running. If `run` is or was in use, the sequence throws `.badConfiguration`. If accepting
    /// connections fails permanently, it throws the same error as `run`.
    public var connections: Connections { Connections(listener: self) }

    /// An asynchronous sequence of a listener's accepted connections.
    public struct Connections: AsyncSequence, Sendable {
        /// An `AsyncSocketError`, or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let listener: SocketListener

        /// Returns an iterator. It starts with the oldest connection that no other iterator has returned.
        public func makeAsyncIterator() -> Iterator {
            Iterator(listener: listener)
        }

        /// An iterator over a listener's accepted connections.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let listener: SocketListener

            /// Returns the next connection, or `nil` after the listener has closed.
            public nonisolated(nonsending) mutating func next(
                isolation actor: (any Actor)? = #isolation
            ) async throws -> AsyncSocket? {
                try listener.acceptForQueue()
                if let socket = try await listener.queue.next() { return socket }
                if let failure = listener.listener.failure { throw failure }
                return nil
            }
        }
    }

    /// Starts accepting on the first call.
    private func acceptForQueue() throws(AsyncSocketError) {
        guard try reception.begin(.connections) else { return }
        listener.start()
        // Detached, because the task must outlive the task that started it. It holds no reference to the
        // listener, because releasing the listener must stop the task.
        Task.detached { [reception, preparation, queue] in
            let isReadyAtOnce = preparation.isEmpty
            let wait = { @Sendable (count: Int) async in
                if isReadyAtOnce { queue.noteExpected(count) }
                await preparation.slots.room()
                await queue.room()
            }
            await reception.serveArrivals(on: .eventLoop, after: wait) { accepted, loop in
                defer { if isReadyAtOnce { queue.noteExpected(-1) } }
                if let socket = await preparation.makeReady(accepted, on: loop, nil) { queue.put(socket) }
            }
            queue.end()
        }
    }
}

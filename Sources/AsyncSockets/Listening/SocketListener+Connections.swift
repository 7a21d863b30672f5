// Rules of the sequence of connections:
//  1. It accepts from the first use on. Accepted connections belong to the listener: a loop that is left
//     early loses nothing, and the next one goes on.
//  2. Each connection is prepared in a task of its own, so that it does not wait for another one's handshake,
//     and gets into the queue when it is ready.
//  3. While `SocketQueue.limit` sockets are ready nothing is taken, and at most a batch waits to be.
//     Handshakes under way do not count: peers that are slow on purpose would hold up all others.

internal import SocketBuffers
internal import SocketCore

extension SocketListener {
    /// The accepted connections, one after the other, for a program that gives each of them to code of its
    /// own. Where a task for each will do, use `run`.
    ///
    /// ```swift
    /// for try await socket in listener.connections { pool.serve(socket) }
    /// ```
    ///
    /// Each socket is ready: its PROXY header has come, and with `tls` it is secure. It is yours: it closes
    /// with the last reference to it at the latest, and outlives the listener. Handshakes do not hold up
    /// other connections. A connection that fails before it is ready never appears; it is logged at the level
    /// `notice`, one line a second of each kind of error at most.
    ///
    /// Accepting begins with the first element that is asked for. It pauses while 16 ready sockets wait, and
    /// at `maximumConnections`. A loop that you leave loses nothing: the next one goes on, until the
    /// listener ends. Several tasks may ask; each socket goes to one of them.
    ///
    /// The sequence ends after `shutdown(within:)`, once the sockets that were ready are delivered. A
    /// cancelled task gets a `CancellationError`, and the listener goes on. While `run` is
    /// used, or has been, there is an error with the code `.badConfiguration`. If the kernel refuses to
    /// accept, the sequence throws the same error as `run`.
    public var connections: Connections { Connections(listener: self) }

    /// The connections of a listener, as they come.
    public struct Connections: AsyncSequence, Sendable {
        /// An `AsyncSocketError`, or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let listener: SocketListener

        /// Goes on with the next connection that has not been taken.
        public func makeAsyncIterator() -> Iterator {
            Iterator(listener: listener)
        }

        /// Brings one connection after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let listener: SocketListener

            /// The next connection; nil after the end.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> AsyncSocket? {
                try listener.acceptForQueue()
                if let socket = try await listener.queue.next() { return socket }
                if let failure = listener.listener.failure { throw failure }
                return nil
            }
        }
    }

    /// Begins to accept, once.
    private func acceptForQueue() throws(AsyncSocketError) {
        guard try reception.begin(.connections) else { return }
        listener.start()
        // Detached, since it belongs to none of the tasks that ask; and without the listener, whose end ends
        // it.
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

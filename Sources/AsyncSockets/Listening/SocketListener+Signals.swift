extension SocketListener {
    /// Serves connections as `run(executor:idleTimeout:onError:_:)` does, until one of `signals` comes;
    /// then it ends as `shutdown(within:)` does.
    ///
    /// ```swift
    /// try await listener.run(untilSignals: [SIGTERM, SIGINT], within: .seconds(30)) { socket in … }
    /// ```
    ///
    /// The first signal ends accepting, and the connections may finish in `time`. A second one cancels them
    /// at once. When this returns, a signal does what it did before; several listeners may wait for the same
    /// signals, and all get them.
    ///
    /// The signal does not interrupt the tasks of connections. Those that wait for something other than their
    /// peers, such as the next message of a chat, need to know from `onShutdown`:
    ///
    /// ```swift
    /// try await listener.run(untilSignals: [SIGTERM], onShutdown: { await room.close() }) { socket in … }
    /// ```
    ///
    /// - Parameters:
    ///   - signals: Numbers of signals (signal(7)), such as `SIGTERM`.
    ///   - time: How long the connections may take from the first signal on, 30 seconds by default; nil: as
    ///     long as they need.
    ///   - executor: As for `run(executor:idleTimeout:onError:_:)`, as for the next three.
    ///   - idleTimeout: When a silent connection ends.
    ///   - onError: Gets the error of each connection that did not end in good order.
    ///   - onShutdown: Called once, when the first signal has ended accepting, in a task of its own. This
    ///     method waits for it. It is cancelled if the caller's task is, and not by a second signal; signals
    ///     after the end of the last connection do what they did before. Without a signal it is not called.
    ///   - body: Serves a connection.
    /// - Throws: What `run(executor:idleTimeout:onError:_:)` throws; `.badParameter` for a signal that a
    ///   program cannot wait for, such as `SIGKILL`, and `.system` when descriptors have run out.
    @concurrent
    public func run(
        untilSignals signals: [Int32], within time: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        onShutdown: (@Sendable () async -> Void)? = nil,
        _ body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws {
        try await serve(untilSignals: signals, within: time, onShutdown: onShutdown) {
            try await self.run(executor: executor, idleTimeout: idleTimeout, onError: onError, body)
        }
    }
}

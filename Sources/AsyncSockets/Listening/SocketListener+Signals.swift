extension SocketListener {
    /// Serves connections as `run(executor:idleTimeout:onError:_:)` does until one of `signals` arrives, then
    /// shuts down as `close(timeout:)` does.
    ///
    /// ```swift
    /// try await listener.run(untilSignals: [SIGTERM, SIGINT], closeTimeout: .seconds(30)) { socket in … }
    /// ```
    ///
    /// The first signal stops accepting and gives the connections `closeTimeout` to finish. A second signal
    /// cancels them immediately. When this method returns, the previous handling of the signals is restored.
    /// Several listeners may listen for the same signals; each receives them.
    ///
    /// The signal does not interrupt the tasks of connections. Tasks that wait for something other than their
    /// peer, such as the next message of a chat, must be notified by `onShutdown`:
    ///
    /// ```swift
    /// try await listener.run(untilSignals: [SIGTERM], onShutdown: { await room.close() }) { socket in … }
    /// ```
    ///
    /// - Parameters:
    ///   - signals: The signal numbers (signal(7)), such as `SIGTERM`.
    ///   - closeTimeout: How long the connections may take after the first signal. Defaults to 30 seconds;
    ///     `nil` sets no limit.
    ///   - executor: Where `body` runs. This parameter and the parameters `idleTimeout`, `onError` and `body`
    ///     are the same as in `run(executor:idleTimeout:onError:_:)`.
    ///   - idleTimeout: Closes a connection if no bytes are sent or received for this long.
    ///   - onError: Called for each connection that fails.
    ///   - onShutdown: Called once, in its own task, after the first signal has stopped accepting. This
    ///     method waits until the closure returns. The closure is cancelled if the caller's task is
    ///     cancelled, but not by a second signal. Once the last connection has finished, signals are handled
    ///     as before, even if the closure is still running. The closure is not called if no signal arrives.
    ///   - body: Serves a connection.
    /// - Throws: The errors of `run(executor:idleTimeout:onError:_:)`; `.badParameter` for a signal that a
    ///   program cannot handle, such as `SIGKILL`; `.system` if the process has no free file descriptors.
    @concurrent
    public func run(
        untilSignals signals: [Int32], closeTimeout: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        onShutdown: (@Sendable () async -> Void)? = nil,
        _ body: nonisolated(nonsending) @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws {
        try await serve(untilSignals: signals, closeTimeout: closeTimeout, onShutdown: onShutdown) {
            try await self.run(executor: executor, idleTimeout: idleTimeout, onError: onError, body)
        }
    }
}

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

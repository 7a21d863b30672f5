extension DatagramListener {
    /// Serves peers as `run(executor:onError:_:)` does. When the process receives one of `signals`, the
    /// listener shuts down as `shutdown(within:)` does. See `SocketListener.run(untilSignals:…)` for the
    /// second signal and `onShutdown`.
    ///
    /// - Parameters:
    ///   - signals: Numbers of signals (signal(7)), such as `SIGTERM`.
    ///   - time: How long the peers may take from the first signal on, 30 seconds by default; nil: as long as
    ///     they need.
    ///   - executor: As for `run(executor:onError:_:)`.
    ///   - onError: Gets the error of each peer that did not end in good order.
    ///   - onShutdown: Called once, when the first signal has ended accepting, in a task of its own. This
    ///     method returns after it.
    ///   - body: Serves a peer.
    /// - Throws: What `run(executor:onError:_:)` throws; `.badParameter` for a signal that a program cannot
    ///   wait for, such as `SIGKILL`, and `.system` when descriptors have run out.
    @concurrent
    public func run(
        untilSignals signals: [Int32], within time: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, onError: (@Sendable (any Error, AsyncUDPSocket) -> Void)? = nil,
        onShutdown: (@Sendable () async -> Void)? = nil,
        _ body: @escaping @Sendable (AsyncUDPSocket) async throws -> Void
    ) async throws {
        try await serve(untilSignals: signals, within: time, onShutdown: onShutdown) {
            try await self.run(executor: executor, onError: onError, body)
        }
    }
}

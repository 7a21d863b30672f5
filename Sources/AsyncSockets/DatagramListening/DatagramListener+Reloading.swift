internal import SocketTLS

extension DatagramListener {
    /// Replaces the settings for later handshakes: see `SocketListener.replaceTLS(_:)`.
    ///
    /// - Throws: `.tls` or `.badParameter` for unusable settings, in which case the old settings stay in
    ///   effect; `.badConfiguration` if the listener was created without `dtls`, or if the settings require a
    ///   trust decision and the listener has no `trust` closure.
    public func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard let tls = preparation.tls else {
            throw .badConfiguration(.bind, "the listener has no DTLS settings to replace: create it with the dtls parameter")
        }
        try tls.replace(settings)
    }

    /// Watches files, and replaces the settings when a file changes: see
    /// `SocketListener.reloadTLS(from:every:onError:_:)`.
    ///
    /// - Parameters:
    ///   - files: The paths of the files.
    ///   - interval: How often the files are checked, every 5 seconds by default.
    ///   - onError: Receives the error if the files cannot be used.
    ///   - makeSettings: Reads the files. It may block.
    /// - Throws: `CancellationError` if the task is cancelled.
    @concurrent
    public func reloadTLS(
        from files: [String], every interval: Duration = .seconds(5), onError: (@Sendable (any Error) -> Void)? = nil,
        _ makeSettings: @Sendable () throws -> TLSServerSettings
    ) async throws {
        try await reload(from: files, every: interval, onError: onError, makeSettings)
    }
}

extension DatagramListener: ServingListener {
    func pass(_ interval: Duration) async throws { try await reception.pass(interval) }
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

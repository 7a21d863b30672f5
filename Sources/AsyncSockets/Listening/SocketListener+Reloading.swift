internal import SocketTLS

extension SocketListener {
    /// Replaces the TLS settings for connections accepted from now on, for example to install a new
    /// certificate or to change the trusted roots or the server names.
    ///
    /// The new settings are fully checked before the change. Each handshake uses either the old or the new
    /// settings throughout, and handshakes already in progress keep the old settings. A session is resumed
    /// only if the identities, trust and policy are unchanged; otherwise a full handshake is performed.
    ///
    /// - Throws: `.tls` or `.badParameter` if the settings cannot be used, in which case the old settings
    ///   remain in effect; `.badConfiguration` if the listener was created without `tls`, or if neither the
    ///   settings nor the listener's `trust` verify certificates.
    public func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard let tls = preparation.tls else {
            throw .badConfiguration(.listen, "the listener has no TLS settings to replace: create it with the tls parameter")
        }
        try tls.replace(settings)
    }

    /// Watches files and replaces the TLS settings, as `replaceTLS(_:)` does, when one of the files changes.
    ///
    /// ```swift
    /// let files = ["server.pem", "server.key"]
    /// Task {
    ///     try await listener.reloadTLS(from: files) {
    ///         .server(identity: try TLSIdentity(certificateFile: files[0], privateKeyFile: files[1]))
    ///     }
    /// }
    /// ```
    ///
    /// Also loads the files immediately, because they may have changed since the listener was created.
    /// Returns within one interval after the listener closes. If a file cannot be used, the settings remain
    /// unchanged and the error is logged at level `error`. Because files that belong together may not change
    /// at the same moment, settings that failed are tried again after each interval.
    ///
    /// - Parameters:
    ///   - files: The paths of the files to watch for changes. Only `makeSettings` reads their contents.
    ///   - interval: How often to check for changes. The default is every 5 seconds.
    ///   - onError: Called with the error if the files cannot be used.
    ///   - makeSettings: Reads the files and returns the settings. It may block.
    /// - Throws: `CancellationError` if the task is cancelled.
    @concurrent
    public func reloadTLS(
        from files: [String], every interval: Duration = .seconds(5), onError: (@Sendable (any Error) -> Void)? = nil,
        _ makeSettings: @Sendable () throws -> TLSServerSettings
    ) async throws {
        try await reload(from: files, every: interval, onError: onError, makeSettings)
    }
}

extension SocketListener: ServingListener {
    func pass(_ interval: Duration) async throws { try await reception.pass(interval) }
}

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

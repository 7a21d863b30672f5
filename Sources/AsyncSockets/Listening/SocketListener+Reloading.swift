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

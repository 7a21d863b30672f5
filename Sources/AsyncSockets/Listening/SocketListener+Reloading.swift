internal import SocketTLS

extension SocketListener {
    /// Has the connections accepted from now on use other settings: a new certificate, other roots, other
    /// names.
    ///
    /// Everything is checked before the change, and each handshake uses the old settings or the new ones.
    /// Handshakes that have begun keep theirs. A session resumes only under settings with the same
    /// identities, trust and policy; otherwise a full handshake follows.
    ///
    /// - Throws: `.tls` or `.badParameter` for unusable settings, and the old ones stay; `.badConfiguration`
    ///   when the listener was made without `tls`, or nothing decides about certificates.
    public func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard let tls = preparation.tls else {
            throw .badConfiguration("accept", "the listener was made without TLS: make one with the parameter tls")
        }
        try tls.replace(settings)
    }

    /// Watches files, and replaces the TLS settings when one of them changes: `replaceTLS(_:)`.
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
    /// It reads them at once too, since they may have changed after the listener was made. It returns within
    /// an interval of the listener's end. A file that cannot be used leaves the settings as they are, and is
    /// logged at the level `error`. Files that belong together may change one after the other, so settings
    /// that fail are tried again after each interval.
    ///
    /// - Parameters:
    ///   - files: The paths of the files. It is the settings that read them: here only their changes count.
    ///   - interval: How often it looks, every 5 seconds by default.
    ///   - onError: Gets the error of files that cannot be used.
    ///   - makeSettings: Reads the files. It may block.
    /// - Throws: `CancellationError` when the task is cancelled.
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

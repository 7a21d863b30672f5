internal import SocketTLS

extension DatagramListener {
    /// Uses other settings for later handshakes: see `SocketListener.replaceTLS(_:)`.
    ///
    /// - Throws: `.tls` or `.badParameter` for unusable settings, and the old ones stay; `.badConfiguration`
    ///   when the listener was made without `dtls`, or nothing decides about certificates.
    public func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard let tls = preparation.tls else {
            throw .badConfiguration("bind", "the listener was made without TLS: make one with the parameter dtls")
        }
        try tls.replace(settings)
    }

    /// Watches files, and replaces the settings when one of them changes: see
    /// `SocketListener.reloadTLS(from:every:onError:_:)`.
    ///
    /// - Parameters:
    ///   - files: The paths of the files.
    ///   - interval: How often they are examined, every 5 seconds by default.
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

extension DatagramListener: ServingListener {
    func pass(_ interval: Duration) async throws { try await reception.pass(interval) }
}

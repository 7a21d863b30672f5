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

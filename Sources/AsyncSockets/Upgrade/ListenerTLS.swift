internal import SocketBuffers
internal import SocketTLS

/// The TLS settings of a listener, which may be replaced while it runs, and the closure that decides whether
/// to trust client certificates. Exists only in a listener with TLS.
final class ListenerTLS: Sendable {
    let trust: (@Sendable (PeerTrust) async throws -> Bool)?
    private let settings: Locked<TLSServerSettings>
    private let transport: TLSTransport

    private static func operation(over transport: TLSTransport) -> AsyncSocketError.Operation {
        transport == .stream ? .listen : .bind
    }

    init(
        _ settings: TLSServerSettings, over transport: TLSTransport, trust: (@Sendable (PeerTrust) async throws -> Bool)?
    ) throws(AsyncSocketError) {
        (self.trust, self.transport) = (trust, transport)
        self.settings = Locked(try Self.check(settings, over: transport, decides: trust != nil))
    }

    var current: TLSServerSettings { settings.withLock { $0 } }

    /// Uses new settings for later handshakes.
    func replace(_ new: TLSServerSettings) throws(AsyncSocketError) {
        let checked = try Self.check(new, over: transport, decides: trust != nil)
        // The old settings may hold a user's objects, and their `deinit` must not run under the lock.
        let old = settings.withLock { settings in
            defer { settings = checked }
            return settings
        }
        withExtendedLifetime(old) {}
    }

    private static func check(
        _ settings: TLSServerSettings, over transport: TLSTransport, decides: Bool
    ) throws(AsyncSocketError) -> TLSServerSettings {
        guard decides || settings.trustEvaluation == .builtIn else {
            throw .badConfiguration(
                operation(over: transport),
                "the settings require trust decisions about clients, but no callback is set: pass a trust closure")
        }
        try AsyncSocketError.check(settings.values, over: transport)
        var settings = settings
        // No plaintext precedes the handshake: bytes that arrive early belong to it.
        if transport == .stream { settings.earlyPlaintext = .feedToTLS }
        return settings
    }
}

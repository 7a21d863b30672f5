internal import SocketBuffers
internal import SocketTLS

/// The TLS settings of a listener, which may be replaced while it runs, and the closure that decides about
/// certificates.
final class ListenerTLS: Sendable {
    let trust: (@Sendable (PeerTrust) async throws -> Bool)?
    /// Apart from the settings: a task that tests those would keep a copy of them until it ends.
    let isUsed: Bool
    private let settings: Locked<TLSServerSettings?>
    private let transport: TLSTransport

    init(
        _ settings: TLSServerSettings?, over transport: TLSTransport, trust: (@Sendable (PeerTrust) async throws -> Bool)?
    ) throws(AsyncSocketError) {
        (self.trust, self.transport, isUsed) = (trust, transport, settings != nil)
        self.settings = Locked(nil)
        if let settings { try replace(settings) }
    }

    /// The settings for the next peer; always nil without TLS.
    var current: TLSServerSettings? { settings.withLock { $0 } }

    /// Uses other settings for later peers.
    func replace(_ new: TLSServerSettings) throws(AsyncSocketError) {
        let operation = transport == .stream ? "accept" : "bind"
        guard isUsed else {
            let parameter = transport == .stream ? "tls" : "dtls"
            throw .badConfiguration(
                operation, "the listener was made without TLS: make one with the parameter \(parameter)")
        }
        guard trust != nil || new.trustEvaluation == .builtIn else {
            throw .badConfiguration(
                operation, "the settings leave the certificates of clients to the program to decide about: pass trust")
        }
        try AsyncSocketError.check(new.values, over: transport)
        var new = new
        // Nothing comes in plaintext: what is there early is the handshake.
        if transport == .stream { new.bytesBufferedAtUpgrade = .feedToTLS }
        // The old ones may hold objects of the user's, which run code when they go: not under the lock.
        let old = settings.withLock { settings in
            defer { settings = new }
            return settings
        }
        withExtendedLifetime(old) {}
    }
}

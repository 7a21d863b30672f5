internal import SocketBuffers

/// The state of a server that may ask its client for a certificate.
final class ClientAuthentication {
    /// The seconds that the client may take.
    let handshakeTimeout: Double
    /// The seconds that the trust callback may take.
    let trustTimeout: Double
    /// The request waits until a message of which half has arrived is complete.
    var isDelayed = false
    /// The gate of the handshake, after the first request: who decides by the settings.
    var original: TrustGate?

    /// Nil where the settings ask no client later, by whatever name.
    init?(_ settings: TLSSettingValues) {
        guard settings.mayRequestClientCertificates else { return nil }
        (handshakeTimeout, trustTimeout) = (settings.handshakeTimeout.inSeconds, settings.trustTimeout.inSeconds)
    }
}

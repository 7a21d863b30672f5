internal import SocketBuffers

/// The state a server needs to request a client certificate after the handshake.
final class ClientAuthentication {
    /// The time limit for the client's response, in seconds.
    let handshakeTimeout: Double
    /// The time limit for the trust callback, in seconds.
    let trustTimeout: Double
    /// Whether the request is delayed until a partially received message is complete.
    var isDelayed = false
    /// The trust gate of the handshake, saved by the first request. The gate of each request is derived
    /// from it.
    var original: TrustGate?

    init(_ settings: TLSSettingValues) {
        (handshakeTimeout, trustTimeout) = (settings.handshakeTimeout.inSeconds, settings.trustTimeout.inSeconds)
    }
}

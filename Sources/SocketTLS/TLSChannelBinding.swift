/// A value that only the two ends of one TLS connection know or share: a channel binding (RFC 5056).
///
/// An authentication that includes it, such as SCRAM-SHA-256-PLUS (RFC 7677), fails when someone in the
/// middle relays it from one connection to another. The raw value is the registered name of the kind.
public enum TLSChannelBinding: String, Sendable, Hashable, CaseIterable {
    /// 32 bytes that both sides derive from the handshake (RFC 9266): the kind to prefer.
    ///
    /// For TLS 1.3, and for TLS 1.2 with the extended master secret (RFC 7627).
    case tlsExporter = "tls-exporter"
    /// The digest of the server's certificate (RFC 5929, section 4).
    ///
    /// Its algorithm is taken from the certificate's signature, with SHA-256 instead of MD5 and SHA-1. A
    /// signature without a digest of its own, such as Ed25519, has no binding of this kind. It works where a
    /// proxy with the same certificate ends TLS, so it protects less than the others.
    case tlsServerEndPoint = "tls-server-end-point"
    /// The first Finished message of the handshake (RFC 5929, section 3): for TLS 1.2 with the extended
    /// master secret only. TLS 1.3 has none (RFC 8446, appendix C.5).
    case tlsUnique = "tls-unique"
}

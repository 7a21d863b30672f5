/// A kind of channel binding (RFC 5056): a value that only the two ends of one TLS connection share.
///
/// An authentication mechanism that includes the binding, such as SCRAM-SHA-256-PLUS (RFC 7677), fails if a
/// man in the middle relays it from one connection to another. The raw value is the name registered with
/// IANA.
public enum TLSChannelBinding: String, Sendable, Hashable, CaseIterable {
    /// 32 bytes that both sides derive from the handshake (RFC 9266). Prefer this kind.
    ///
    /// Available with TLS 1.3, and with TLS 1.2 if the extended master secret (RFC 7627) was negotiated.
    case tlsExporter = "tls-exporter"
    /// The digest of the server's certificate (RFC 5929, section 4).
    ///
    /// The digest algorithm is the one in the certificate's signature, except that SHA-256 replaces MD5 and
    /// SHA-1. If the certificate's signature has no separate digest, as with Ed25519, this kind is not
    /// available. This kind protects less than the other kinds: it also matches if a proxy with the same
    /// certificate terminates TLS.
    case tlsServerEndPoint = "tls-server-end-point"
    /// The first Finished message of the handshake (RFC 5929, section 3).
    ///
    /// Available only with TLS 1.2 and the extended master secret. TLS 1.3 does not define it (RFC 8446,
    /// appendix C.5).
    case tlsUnique = "tls-unique"
}

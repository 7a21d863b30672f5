/// The role of one side in the handshake.
public enum TLSRole: Sendable, Hashable {
    /// The client, which starts the handshake.
    case client
    /// The server, which responds to the client.
    case server

    /// A role as a type, which determines the settings that `TLSSettings` has.
    public protocol Side: Sendable {}
    /// The role of a client, as a type.
    public enum Client: Side {}
    /// The role of a server, as a type.
    public enum Server: Side {}
}

/// Whether OpenSSL, the trust callback, or both decide about the peer's certificate.
public enum TLSTrustEvaluation: Sendable, Hashable {
    /// OpenSSL decides, and the trust callback is not called. If a task passes a `trust` closure, this is
    /// treated as `.delegate`.
    case builtIn
    /// Both must accept the certificate. The trust callback is called only if OpenSSL accepts it, so the
    /// callback can only reject more certificates.
    case delegate
    /// Only the trust callback decides. It receives OpenSSL's verdict.
    ///
    /// **Dangerous**: a callback that accepts every certificate allows any attacker to impersonate the peer.
    case manual
}

/// How to treat bytes that arrived before the upgrade to TLS started.
public enum TLSEarlyPlaintext: Sendable, Hashable {
    /// The connection is closed. In TLS the server never sends first, so an honest server cannot have sent
    /// such bytes.
    case reject
    /// The bytes must be the start of the TLS handshake. Otherwise the handshake fails.
    case feedToTLS
}

/// Whether a client without a certificate or raw public key is accepted. A client with an invalid certificate
/// or an unexpected key is always rejected.
public enum TLSClientCertificates: Sendable, Hashable {
    /// A client without a certificate is accepted.
    case optional
    /// A client without a certificate is rejected.
    case required
}

package enum TLSCertificateRequest: Sendable, Hashable {
    case none
    case optional
    case required
    case onRequest

    init(_ demand: TLSClientCertificates) {
        switch demand {
        case .optional: self = .optional
        case .required: self = .required
        }
    }
}

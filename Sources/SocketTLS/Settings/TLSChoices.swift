/// A side of the handshake.
public enum TLSRole: Sendable, Hashable {
    /// The side that begins, and the name or address that it expects; nil: the host that the program
    /// connected to.
    case client(serverName: String?)
    /// The side that answers.
    case server
}

/// Whether OpenSSL, the trust callback, or both decide about the peer's certificate.
public enum TLSTrustEvaluation: Sendable, Hashable {
    /// OpenSSL alone.
    case builtIn
    /// OpenSSL, and then the trust callback, which can only refuse more: it is asked if OpenSSL accepts.
    case delegate
    /// The trust callback alone, which receives OpenSSL's verdict.
    ///
    /// **Dangerous**: a callback that accepts everything lets anyone pose as the peer.
    case manual
}

/// The treatment of bytes that arrived before the upgrade to TLS began.
public enum TLSBytesBufferedAtUpgrade: Sendable, Hashable {
    /// They end the connection: a server never speaks first in TLS, so it cannot have sent them honestly.
    case reject
    /// They must be the beginning of the TLS handshake; otherwise it fails.
    case feedToTLS
}

/// Whether a client without a certificate, or without a raw public key, is admitted. One with a bad
/// certificate or an unexpected key is not.
public enum TLSClientCertificates: Sendable, Hashable {
    /// It is admitted.
    case optional
    /// It is not.
    case required
}

/// Whether and when a server asks for a certificate.
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

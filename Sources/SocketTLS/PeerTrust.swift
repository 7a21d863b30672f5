internal import COpenSSL

/// A certificate chain, or a raw public key, that waits for a decision, and the verdict on it.
///
/// A client is asked before the server has proved that it holds the private key: do not store anything about
/// the certificate until the handshake is complete. A server is asked after the client has proved it.
public struct PeerTrust: Sendable, Hashable {
    /// The side that is judged: `.server` on a client, `.client` on a server.
    public let peer: Peer
    /// The certificates as the peer sent them, its own first. They belong together only if the `verdict` is
    /// `.trusted`. Empty if the peer shows a raw public key.
    public let chain: [Certificate]
    /// OpenSSL's verdict: on the chain, the dates, the purpose and, if it is verified, the host name.
    public let verdict: Verdict
    /// Where the trust callback may overrule the verdict (`TLSTrustEvaluation.manual`): all faults
    /// besides the one of `verdict`. Otherwise empty: the first fault counts.
    public let otherFaults: [Verdict]
    /// The name or address that the client expects; nil if a client is judged.
    public let serverName: String?
    /// The raw public key that the peer shows instead of certificates, as a SubjectPublicKeyInfo in DER (RFC
    /// 7250, section 3); nil for certificates. It is one of the keys in the settings: the
    /// trust callback is not asked about another.
    public let publicKey: [UInt8]?

    /// A chain and a verdict: for tests of a trust callback.
    public init(
        peer: Peer = .server, chain: [Certificate], verdict: Verdict = .trusted, otherFaults: [Verdict] = [],
        serverName: String? = nil, publicKey: [UInt8]? = nil
    ) {
        self.otherFaults = otherFaults
        self.peer = peer
        self.chain = chain
        self.verdict = verdict
        self.serverName = serverName
        self.publicKey = publicKey
    }

    /// The peer's own certificate.
    public var leaf: Certificate? { chain.first }

    /// The side whose certificate is judged.
    public enum Peer: Sendable, Hashable {
        /// The judge is a client.
        case server
        /// The judge is a server.
        case client
    }

    /// OpenSSL's verdict.
    public enum Verdict: Sendable, Hashable {
        /// The chain leads to a trusted root, and everything else is right too.
        case trusted
        /// The first fault, or a revocation: a sentence, OpenSSL's `X509_V_ERR_*` code, and the position in
        /// the chain (0 is the leaf).
        case untrusted(reason: String, code: Int32, depth: Int)

        var isRevocation: Bool {
            if case .untrusted(_, X509_V_ERR_CERT_REVOKED, _) = self { true } else { false }
        }
    }
}

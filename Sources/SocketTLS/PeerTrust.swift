/// A certificate chain that waits for a decision, and what OpenSSL thinks of it.
///
/// A client is asked before the server has proved that it holds the private key: do not store anything about
/// the certificate until the handshake is complete. A server is asked after the client has proved it.
public struct PeerTrust: Sendable, Hashable {
    /// Who is judged: `.server` on a client, `.client` on a server.
    public let peer: Peer
    /// The certificates as the peer sent them, its own first. Nothing says that they belong together, except
    /// a `verdict` of trusted.
    public let chain: [Certificate]
    /// OpenSSL's own judgement: chain, dates, purpose, and the host name where one is verified.
    public let verdict: Verdict
    /// The name or address that the client expects; nil when a client is judged.
    public let serverName: String?

    /// A chain and what is thought of it: for tests of a trust callback.
    public init(
        peer: Peer = .server, chain: [Certificate], verdict: Verdict = .trusted, serverName: String? = nil
    ) {
        self.peer = peer
        self.chain = chain
        self.verdict = verdict
        self.serverName = serverName
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

    /// OpenSSL's judgement.
    public enum Verdict: Sendable, Hashable {
        /// The chain leads to a trusted root, and everything else fits too.
        case trusted
        /// The first thing that does not fit: a sentence, OpenSSL's `X509_V_ERR_*` code, and the place in the
        /// chain (0 is the leaf).
        case untrusted(reason: String, code: Int32, depth: Int)
    }
}

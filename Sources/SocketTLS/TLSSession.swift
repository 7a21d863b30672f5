/// The result of a handshake: what the two sides agreed on.
public struct TLSSession: Sendable, Hashable {
    /// The protocol version.
    public let protocolVersion: TLSVersion
    /// The cipher suite by its IANA name, such as "TLS_AES_256_GCM_SHA384".
    public let cipherSuite: String
    /// The key exchange group by its OpenSSL name, such as "x25519", or nil when the key exchange has none.
    public let group: String?
    /// The protocol chosen by ALPN, or nil.
    public let applicationProtocol: String?
    /// The peer's certificates as it sent them, its own first; empty if it sent none.
    public let peerCertificates: [Certificate]
    /// The name of SNI: sent on a client, received on a server; nil if there was none.
    public let serverName: String?
    /// Whether the session was resumed from an earlier one. Then `peerCertificates` come from that one.
    public let isResumed: Bool
    /// Whether the peer's verified chain has one of `TLSCertificateRules.pins`: false only if the settings
    /// report pins and do not enforce them; nil without pins, for a chain that is not trusted, and for a
    /// resumed session.
    public let matchesPins: Bool?
    /// How the peer has signed the handshake: the kind of its key and the digest, such as "ECDSA-SHA256",
    /// "RSA-PSS-SHA256", "RSA-SHA256" or "Ed25519". Nil when it has not: in a resumed session, and without a
    /// certificate of the peer.
    public let peerSignatureAlgorithm: String?
    /// The identity of the pre-shared key for which the peer was accepted (`TLSPreSharedKey`), or
    /// nil. With one there are no `peerCertificates`, and the session is not resumed.
    ///
    /// On a server it names the client, which has proved to have that key.
    public let preSharedKeyIdentity: [UInt8]?
    /// The raw public key for which the peer was accepted (`TLSPreSharedKey`), as a
    /// SubjectPublicKeyInfo in DER; nil for a peer with certificates, or with nothing. With one there are no
    /// `peerCertificates`.
    public let peerPublicKey: [UInt8]?
    /// The outcome of early data (RFC 8446, section 4.2.10): see `TLSEarlyData`.
    public let earlyData: TLSEarlyDataOutcome
    /// On a server: how many of the bytes that are read first came as early data. The handshake has confirmed
    /// them: they are not a replay. They have no forward secrecy. 0 on a client, and for bytes that a
    /// `TLSEarlyDataResponder` has answered.
    public let earlyByteCount: Int
    /// A session that a later connection can resume with `TLSResumption.session(_:)`: the latest
    /// that the server has offered; nil on a server, and when the settings or the server want none.
    ///
    /// In TLS 1.3 it comes after the handshake, with the first bytes that are read. So ask when you need it.
    public var resumable: TLSResumableSession? { source.resumption?.latest }
    let source: Source

    /// Where `resumable` comes from. It does not make sessions different.
    struct Source: Sendable, Hashable {
        var resumption: ClientResumption?

        static func == (left: Source, right: Source) -> Bool { true }

        func hash(into hasher: inout Hasher) {}
    }

    /// A session that was never negotiated: for tests of code that reads one.
    public init(
        protocolVersion: TLSVersion = .tls13,
        cipherSuite: String = "TLS_AES_256_GCM_SHA384",
        group: String? = "x25519",
        applicationProtocol: String? = nil,
        peerCertificates: [Certificate] = [],
        serverName: String? = nil,
        isResumed: Bool = false,
        matchesPins: Bool? = nil,
        peerSignatureAlgorithm: String? = nil,
        preSharedKeyIdentity: [UInt8]? = nil,
        peerPublicKey: [UInt8]? = nil,
        earlyData: TLSEarlyDataOutcome = .notOffered,
        earlyByteCount: Int = 0
    ) {
        self.preSharedKeyIdentity = preSharedKeyIdentity
        self.peerPublicKey = peerPublicKey
        self.protocolVersion = protocolVersion
        self.cipherSuite = cipherSuite
        self.group = group
        self.applicationProtocol = applicationProtocol
        self.peerCertificates = peerCertificates
        self.serverName = serverName
        self.isResumed = isResumed
        self.matchesPins = matchesPins
        self.peerSignatureAlgorithm = peerSignatureAlgorithm
        self.earlyData = earlyData
        self.earlyByteCount = earlyByteCount
        source = Source()
    }
}

internal import COpenSSL

/// What the two sides agreed on in a handshake.
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
    /// Whether the session was resumed from an earlier one. Then `peerCertificates` are those of that one.
    public let isResumed: Bool
    /// Whether the peer's verified chain has one of `TLSSettings.pins`: false only if the settings report
    /// pins and do not enforce them; nil without pins, for a chain that is not trusted, and for a resumed
    /// session.
    public let matchesPins: Bool?
    /// How the peer has signed the handshake: the kind of its key and the digest, such as "ECDSA-SHA256",
    /// "RSA-PSS-SHA256", "RSA-SHA256" or "Ed25519". Nil when it has not: in a resumed session, and without a
    /// certificate of the peer.
    public let peerSignatureAlgorithm: String?
    /// The identity of the pre-shared key for which the peer was accepted (`TLSSettings.preSharedKeys`), or
    /// nil. With one there are no `peerCertificates`, and the session is not resumed.
    ///
    /// On a server it names the client, which has proved to have that key.
    public let preSharedKeyIdentity: [UInt8]?
    /// The raw public key for which the peer was accepted (`TLSSettings.rawPublicKeys`), as a
    /// SubjectPublicKeyInfo in DER; nil for a peer with certificates, or with nothing. With one there are no
    /// `peerCertificates`.
    public let peerPublicKey: [UInt8]?
    /// What became of early data (RFC 8446, section 4.2.10): see `TLSEarlyData`.
    public let earlyData: TLSEarlyDataOutcome
    /// On a server: how many of the bytes that are read first came as early data. The handshake has confirmed
    /// them: they are no replay. They have no forward secrecy. 0 on a client, and for bytes that a
    /// `TLSEarlyDataResponder` has answered.
    public let earlyByteCount: Int
    /// A session that a later connection can resume with `TLSSettings.Resumption.session(_:)`: the latest
    /// that the server has offered; nil on a server, and when the settings or the server want none.
    ///
    /// In TLS 1.3 it comes after the handshake, with the first bytes that are read. So ask when you need it.
    public var resumable: TLSResumableSession? { source.resumption?.latest }
    private let source: Source

    /// Where `resumable` comes from. It does not make sessions different.
    private struct Source: Sendable, Hashable {
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

extension TLSSession {
    /// The facts of an `SSL` whose handshake is complete.
    init(of ssl: OpaquePointer, _ events: EngineEvents) {
        matchesPins = events.matchesPins
        preSharedKeyIdentity = events.gate.preSharedKeyIdentity
        peerPublicKey = events.gate.acceptedPublicKey
        source = Source(resumption: events.resumption)
        protocolVersion = TLSVersion(wireValue: UInt16(truncatingIfNeeded: SSL_version(ssl)))
        cipherSuite = Self.cipherSuite(of: ssl)
        group = SSL_group_to_name(ssl, COpenSSL_negotiatedGroup(ssl)).map { String(cString: $0) }
        applicationProtocol = Self.applicationProtocol(of: ssl)
        // A session from a store has come without its chain.
        peerCertificates =
            events.resumption?.offered?.peerCertificates ?? Self.peerCertificates(of: ssl, isServer: events.isServer)
        serverName = Self.serverName(of: ssl)
        // OpenSSL makes a session of an external key too.
        isResumed = SSL_session_reused(ssl) == 1 && preSharedKeyIdentity == nil
        peerSignatureAlgorithm = Self.peerSignatureAlgorithm(of: ssl)
        earlyData = events.withholdsEarlyData ? .withheld : Self.earlyData(of: ssl)
        earlyByteCount = events.earlyByteCount
    }

    private static func earlyData(of ssl: OpaquePointer) -> TLSEarlyDataOutcome {
        switch SSL_get_early_data_status(ssl) {
        case SSL_EARLY_DATA_ACCEPTED: .accepted
        case SSL_EARLY_DATA_REJECTED: .rejected
        default: .notOffered
        }
    }

    static func serverName(of ssl: OpaquePointer) -> String? {
        SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name).map { String(cString: $0) }
    }

    private static func peerSignatureAlgorithm(of ssl: OpaquePointer) -> String? {
        var kind: Int32 = NID_undef
        guard SSL_get_peer_signature_type_nid(ssl, &kind) == 1, kind != NID_undef else { return nil }
        let name: String? =
            switch kind {
            case EVP_PKEY_RSA: "RSA"
            case EVP_PKEY_RSA_PSS: "RSA-PSS"
            case EVP_PKEY_EC: "ECDSA"
            case EVP_PKEY_ED25519: "Ed25519"
            case EVP_PKEY_ED448: "Ed448"
            default: OBJ_nid2sn(kind).map { String(cString: $0) }
            }
        let digest = COpenSSL_peerSignatureDigest(ssl)
        guard digest != NID_undef, let digestName = OBJ_nid2sn(digest) else { return name }
        return name.map { "\($0)-\(String(cString: digestName))" }
    }

    private static func cipherSuite(of ssl: OpaquePointer) -> String {
        let cipher = SSL_get_current_cipher(ssl)
        return (SSL_CIPHER_standard_name(cipher) ?? SSL_CIPHER_get_name(cipher)).map { String(cString: $0) } ?? ""
    }

    static func applicationProtocol(of ssl: OpaquePointer) -> String? {
        var name: UnsafePointer<UInt8>?
        var length: UInt32 = 0
        SSL_get0_alpn_selected(ssl, &name, &length)
        guard let name, length > 0 else { return nil }
        return String(decoding: UnsafeBufferPointer(start: name, count: Int(length)), as: UTF8.self)
    }

    /// OpenSSL's chain contains the peer's own certificate on a client, but not on a server.
    static func peerCertificates(of ssl: OpaquePointer, isServer: Bool) -> [Certificate] {
        let chain = Certificate.certificates(sharing: SSL_get_peer_cert_chain(ssl))
        guard isServer, let leaf = SSL_get0_peer_certificate(ssl) else { return chain }
        return [Certificate(sharing: leaf)] + chain
    }
}

internal import COpenSSL

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

extension TLSVersion {
    /// The version of a connection, or the one that it tries.
    init(of ssl: OpaquePointer) { self.init(wireNumber: SSL_version(ssl)) }
}

extension TLSSession {
    /// The facts of an `SSL` whose handshake is complete.
    init(of ssl: OpaquePointer, _ judge: Judge, _ early: EarlyDataFacts) {
        matchesPins = judge.matchesPins
        preSharedKeyIdentity = judge.gate.accepted(.preSharedKey)
        peerPublicKey = judge.gate.accepted(.rawPublicKey)
        source = Source(resumption: judge.resumption)
        protocolVersion = TLSVersion(of: ssl)
        cipherSuite = Self.cipherSuite(of: ssl)
        group = SSL_group_to_name(ssl, COpenSSL_negotiatedGroup(ssl)).map { String(cString: $0) }
        applicationProtocol = Self.applicationProtocol(of: ssl)
        // A session from a store has come without its chain.
        peerCertificates =
            judge.resumption?.offered?.peerCertificates ?? Certificate.certificates(ofPeerOn: ssl, isServer: judge.isServer)
        serverName = Self.serverName(of: ssl)
        // OpenSSL makes a session of an external key too.
        isResumed = SSL_session_reused(ssl) == 1 && preSharedKeyIdentity == nil
        peerSignatureAlgorithm = Self.peerSignatureAlgorithm(of: ssl)
        earlyData = early.isWithheld ? .withheld : Self.earlyData(of: ssl)
        earlyByteCount = early.byteCount
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
}

extension TLSSession: CustomStringConvertible {
    /// One line for people, such as "TLSv1.3, TLS_AES_256_GCM_SHA384, x25519, ALPN h2, resumed, peer
    /// mail.example.org". Missing values are left out. It may change; programs use the properties, or
    /// `json`.
    public var description: String {
        [
            protocolVersion.description, cipherSuite, group, applicationProtocol.map { "ALPN \($0.printable)" },
            isResumed ? "resumed" : nil, preSharedKeyText.map { "pre-shared key \($0.printable)" },
            peerCertificates.first.map { "peer \($0.displayName)" }, publicKeyText.map { "peer key \($0)" },
        ].compactMap(\.self).joined(separator: ", ")
    }

    /// A JSON object on one line, for logs that programs read. Its keys stay what they are, and come in this
    /// order; new ones may follow.
    ///
    /// - `version`: `protocolVersion`, such as "TLSv1.3".
    /// - `cipherSuite`, `group`, `applicationProtocol`, `serverName`: the properties.
    /// - `isResumed`: true or false.
    /// - `peerName`: the common name of the peer's certificate, or else its first host name or its subject.
    /// - `peerFingerprint`: the SHA-256 digest of the peer's certificate, in hexadecimal.
    /// - `peerSignatureAlgorithm`: the property.
    /// - `preSharedKeyIdentity`: the property, read as UTF-8.
    /// - `peerPublicKey`: the SHA-256 digest of the property, in hexadecimal.
    ///
    /// Strings, except for `isResumed`; null for what is not there.
    public var json: String {
        let peer = peerCertificates.first
        let members: KeyValuePairs<String, String?> = [
            "version": protocolVersion.description, "cipherSuite": cipherSuite, "group": group,
            "applicationProtocol": applicationProtocol, "serverName": serverName, "isResumed": nil,
            "peerName": peer?.displayName, "peerFingerprint": peer?.sha256Fingerprint.hexadecimal,
            "peerSignatureAlgorithm": peerSignatureAlgorithm, "preSharedKeyIdentity": preSharedKeyText,
            "peerPublicKey": publicKeyText,
        ]
        let texts = members.map { key, value in
            "\"\(key)\":\(key == "isResumed" ? "\(isResumed)" : value?.quotedForJSON ?? "null")"
        }
        return "{\(texts.joined(separator: ","))}"
    }

    private var publicKeyText: String? { peerPublicKey.map { PublicKeyInfo.sha256(of: $0).hexadecimal } }

    private var preSharedKeyText: String? { preSharedKeyIdentity.map { String(decoding: $0, as: UTF8.self) } }
}

extension [UInt8] {
    var hexadecimal: String {
        map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

extension String {
    /// A string of JSON (RFC 8259, section 7).
    fileprivate var quotedForJSON: String {
        var quoted = "\""
        for scalar in unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            case "\u{0}"..<" ", "\u{7F}", "\u{2028}", "\u{2029}":
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}

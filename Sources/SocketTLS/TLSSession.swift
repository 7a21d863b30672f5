internal import COpenSSL

/// The parameters that the two sides negotiated in a handshake.
public struct TLSSession: Sendable, Hashable {
    /// The protocol version.
    public let protocolVersion: TLSProtocolVersion
    /// The cipher suite by its IANA name, such as "TLS_AES_256_GCM_SHA384".
    public let cipherSuite: String
    /// The key exchange group by its OpenSSL name, such as "x25519", or `nil` if the key exchange uses no
    /// group.
    public let group: String?
    /// The protocol selected by ALPN, or `nil` if no protocol was selected.
    public let applicationProtocol: String?
    /// The certificates as the peer sent them, starting with its own. Empty if the peer sent no certificates.
    public let peerCertificates: [TLSCertificate]
    /// The server name (SNI) that the client sent, or `nil` if it sent no name.
    public let serverName: String?
    /// Whether the session was resumed from an earlier session. `peerCertificates` are then from the earlier
    /// session.
    public let isResumed: Bool
    /// Whether the peer's verified chain contains one of `TLSCertificateRules.pins`.
    ///
    /// `false` is possible only if the settings report pin mismatches without enforcing them. `nil` if no
    /// pins are set, if the chain is not trusted, or if the session was resumed.
    public let matchesPins: Bool?
    /// The kind of key and the digest with which the peer signed the handshake, such as "ECDSA-SHA256",
    /// "RSA-PSS-SHA256", "RSA-SHA256" or "Ed25519".
    ///
    /// `nil` if the peer did not sign: in a resumed session, or if it has no certificate.
    public let peerSignatureAlgorithm: String?
    /// The identity of the pre-shared key that authenticated the peer (`TLSPreSharedKey`). `nil` if the peer
    /// did not authenticate with a pre-shared key.
    ///
    /// If set, `peerCertificates` is empty and the session is not resumed. On a server, it identifies the
    /// client, which has proved possession of the key.
    public let preSharedKeyIdentity: [UInt8]?
    /// The raw public key that authenticated the peer (`TLSRawPublicKeys`), as a DER SubjectPublicKeyInfo.
    ///
    /// `nil` if the peer authenticated in another way or did not authenticate. If set, `peerCertificates` is
    /// empty.
    public let peerPublicKey: [UInt8]?
    /// The OCSP response (RFC 6960, in DER) that the server sent with its certificate. See
    /// `TLSServerProof`.
    ///
    /// The response has been checked, even if the trust callback accepted a chain that OpenSSL rejects: it
    /// states that the certificate is not revoked. `nil` without a response, on a server, if the session was
    /// resumed, and if a TLSA record authenticated the certificate without its issuer.
    public let ocspResponse: [UInt8]?
    /// How TLSA records contributed to the authentication of the server: see `TLSDANE`.
    public let dane: TLSDANEResult
    /// The outcome of early data (RFC 8446, section 4.2.10). See `TLSEarlyData`.
    public let earlyData: TLSEarlyDataOutcome
    /// On a server, the number of bytes at the start of the received data that arrived as early data.
    ///
    /// The completed handshake has confirmed that these bytes are not a replay. They have no forward secrecy.
    /// 0 on a client, and for bytes already handled by a `TLSEarlyDataResponder`.
    public let earlyDataByteCount: Int
    /// On a client, the server's request for a certificate in this handshake. `nil` if the server did not
    /// request a certificate, which includes resumed sessions, and on a server.
    ///
    /// In TLS 1.3, the server verifies the certificate after the client's handshake is complete. If it
    /// rejects the certificate, or a client without a certificate, a later read fails with the server's
    /// alert.
    public let clientCertificateRequest: TLSClientCertificateRequest?
    /// The latest session that the server offered. A later connection can resume it with
    /// `TLSResumption.session(_:)`.
    ///
    /// `nil` on a server, or if the settings or the server do not allow resumption. In TLS 1.3 the session
    /// arrives after the handshake, with the first bytes that are read, so read this property when you need
    /// the session.
    public var resumable: TLSResumableSession? { source.resumption?.latest }
    let source: Source

    /// The source of `resumable`. It is ignored when sessions are compared.
    struct Source: Sendable, Hashable {
        var resumption: ClientResumption?

        static func == (left: Source, right: Source) -> Bool { true }

        func hash(into hasher: inout Hasher) {}
    }

    /// Creates a session that was never negotiated, for tests of code that inspects sessions.
    public init(
        protocolVersion: TLSProtocolVersion = .tls13,
        cipherSuite: String = "TLS_AES_256_GCM_SHA384",
        group: String? = "x25519",
        applicationProtocol: String? = nil,
        peerCertificates: [TLSCertificate] = [],
        serverName: String? = nil,
        isResumed: Bool = false,
        matchesPins: Bool? = nil,
        peerSignatureAlgorithm: String? = nil,
        preSharedKeyIdentity: [UInt8]? = nil,
        peerPublicKey: [UInt8]? = nil,
        ocspResponse: [UInt8]? = nil,
        earlyData: TLSEarlyDataOutcome = .notOffered,
        earlyDataByteCount: Int = 0,
        clientCertificateRequest: TLSClientCertificateRequest? = nil,
        dane: TLSDANEResult = .notUsed
    ) {
        self.dane = dane
        self.clientCertificateRequest = clientCertificateRequest
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
        self.ocspResponse = ocspResponse
        self.earlyData = earlyData
        self.earlyDataByteCount = earlyDataByteCount
        source = Source()
    }
}

extension TLSProtocolVersion {
    /// The negotiated version, or the version currently attempted.
    init(of ssl: OpaquePointer) { self.init(wireNumber: SSL_version(ssl)) }
}

extension TLSSession {
    init(of ssl: OpaquePointer, _ facts: Facts, _ early: EarlyDataFacts?) {
        let judge = facts.judge
        clientCertificateRequest = facts.certificateRequest(on: ssl)
        matchesPins = judge.matchesPins
        dane = judge.dane?.result(on: ssl) ?? .notUsed
        preSharedKeyIdentity = judge.gate.accepted(.preSharedKey)
        peerPublicKey = judge.gate.accepted(.rawPublicKey)
        source = Source(resumption: judge.resumption)
        protocolVersion = TLSProtocolVersion(of: ssl)
        cipherSuite = Self.cipherSuite(of: ssl)
        group = SSL_group_to_name(ssl, COpenSSL_negotiatedGroup(ssl)).map { String(cString: $0) }
        applicationProtocol = Self.applicationProtocol(of: ssl)
        // A session from a store does not include the peer's chain.
        peerCertificates =
            judge.resumption?.offered?.peerCertificates ?? TLSCertificate.certificates(ofPeerOn: ssl, isServer: judge.isServer)
        serverName = Self.serverName(of: ssl)
        // OpenSSL also creates a session for an external pre-shared key.
        isResumed = SSL_session_reused(ssl) == 1 && preSharedKeyIdentity == nil
        peerSignatureAlgorithm = Self.peerSignatureAlgorithm(of: ssl)
        ocspResponse = judge.stapling == .none || dane.needsNoIssuer ? nil : judge.ocspResponse(on: ssl)
        earlyData = early?.isWithheld == true ? .withheld : Self.earlyData(of: ssl)
        earlyDataByteCount = early?.byteCount ?? 0
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
    /// A one-line summary for people, such as "TLSv1.3, TLS_AES_256_GCM_SHA384, x25519, ALPN h2, resumed,
    /// peer mail.example.org".
    ///
    /// Missing values are omitted. The format may change: in code, use the properties or `json`.
    public var description: String {
        [
            protocolVersion.description, cipherSuite, group, applicationProtocol.map { "ALPN \($0.printable)" },
            isResumed ? "resumed" : nil, preSharedKeyText.map { "pre-shared key \($0.printable)" },
            peerCertificates.first.map { "peer \($0.displayName)" }, publicKeyText.map { "peer key \($0)" },
        ].compactMap(\.self).joined(separator: ", ")
    }

    /// A JSON object on one line, for machine-readable logs. Keys and their order are stable, and new keys
    /// may be appended.
    ///
    /// - `version`: `protocolVersion`, such as "TLSv1.3".
    /// - `cipherSuite`, `group`, `applicationProtocol`, `serverName`: The properties of the same names.
    /// - `isResumed`: `true` or `false`.
    /// - `peerName`: The common name of the peer's certificate or, if it has no common name, its first host
    ///   name or its subject.
    /// - `peerFingerprint`: The SHA-256 digest of the peer's certificate, in hexadecimal.
    /// - `peerSignatureAlgorithm`: The property of the same name.
    /// - `preSharedKeyIdentity`: The property of the same name, decoded as UTF-8.
    /// - `peerPublicKey`: The SHA-256 digest of the property, in hexadecimal.
    ///
    /// All values except `isResumed` are strings, or null if missing.
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
    /// The string as a JSON string literal (RFC 8259, section 7).
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

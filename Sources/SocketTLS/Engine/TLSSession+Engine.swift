internal import COpenSSL

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

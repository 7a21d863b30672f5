internal import COpenSSL

extension TLSSettingValues {
    package var rawPublicKeys: TLSRawPublicKeys? {
        get { proof.rawPublicKeys }
        set { proof = newValue.map { .rawPublicKeys($0) } ?? .certificates }
    }

    func clients(by keys: TLSRawPublicKeys) -> TLSClients {
        let given = keys.used(.required)
        return switch keys.use {
        case .required: .rawPublicKeys(given, demand)
        case .preferred: .rawPublicKeysOrCertificates(given, demand, rules)
        }
    }

    /// Throws if a client's settings need sessions, which connections with raw public keys do not have.
    func requireNoSessions() throws(TLSError) {
        try requireNoSessionOfOthers()
        if earlyData != nil {
            throw Self.invalid("earlyData requires session resumption, which raw public keys do not support: set it to nil")
        }
    }

    /// Throws if another setting is incompatible with raw public keys.
    func validateRawPublicKeys() throws(TLSError) {
        try TLSRawPublicKeys.requireSupport()
        try requireNoSessions()
        if certificateType == .rawPublicKey, identity == nil {
            throw Self.invalid("identity is nil, but presentsRawPublicKey is true: set identity")
        }
        if tickets != .none {
            throw Self.invalid("raw public keys cannot be combined with sessionTickets")
        }
        if allowsPostHandshakeAuthentication {
            throw Self.invalid("raw public keys do not support allowsPostHandshakeAuthentication: set it to false")
        }
        if requestsClientCertificates {
            throw Self.invalid("clients is .certificatesOnRequest, which raw public keys do not support")
        }
    }
}

extension TLSRawPublicKeys {
    /// The kind of key that the peer must have; `nil` if other proof is accepted.
    var requiredKind: KeyProof.Kind? { use == .required ? .rawPublicKey : nil }

    fileprivate static func requireSupport() throws(TLSError) {
        if isSupported { return }
        let version = OpenSSL_version(OPENSSL_VERSION_STRING).map { String(cString: $0) } ?? "another"
        throw TLSSettingValues.invalid("raw public keys require OpenSSL 3.2 or newer, but the loaded version is \(version)")
    }
}

// Rules for raw public keys:
//  1. The allowed certificate types are part of the context, and therefore of the settings that were selected
//     for the client's server name (SNI).
//  2. OpenSSL would verify a raw key only against a DANE record. It calls our verify callback for raw
//     keys and for certificates. The callback compares a raw key with the list and passes the result to
//     the trust gate. OpenSSL still checks that the peer has the private key, as with certificates.
//  3. A peer without support for raw public keys ignores the extension and sends a certificate. The gate
//     itself must therefore reject certificates if a raw key is required.
//  4. With raw public keys, a server issues no tickets and a client resumes no sessions, so a verdict on a
//     key is never reused.

extension TLSRawPublicKeys {
    static func areShownByServer(on ssl: OpaquePointer) -> Bool { COpenSSL_serverShowsRawKey(ssl) != 0 }

    private static let rawType = UInt8(COPENSSL_CERTIFICATE_TYPE_RAW)
    /// Both certificate types, in order of preference.
    private static let bothTypes = [rawType, UInt8(COPENSSL_CERTIFICATE_TYPE_X509)]

    /// Sets the certificate types that this side can present.
    static func present(on context: OpaquePointer, isServer: Bool) throws(TLSError) {
        try set(bothTypes, ofServers: isServer, on: context)
    }

    /// Sets the certificate types that this side accepts.
    func expect(on context: OpaquePointer, isServer: Bool) throws(TLSError) {
        try Self.set(use == .required ? [Self.rawType] : Self.bothTypes, ofServers: !isServer, on: context)
    }

    /// Lets a client accept raw public keys on one connection, if OpenSSL supports them.
    static func accept(on ssl: OpaquePointer) throws(TLSError) {
        guard isSupported else { return }
        try OpenSSLCall.requireSuccess("SSL_set1_server_cert_type") {
            COpenSSL_setServerCertificateTypes(ssl, bothTypes, bothTypes.count)
        }
    }

    private static func set(_ types: [UInt8], ofServers: Bool, on context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess(ofServers ? "SSL_CTX_set1_server_cert_type" : "SSL_CTX_set1_client_cert_type") {
            COpenSSL_CTX_setCertificateTypes(context, ofServers ? 1 : 0, types, types.count)
        }
    }
}

extension Judge {
    /// Passes the raw public key that OpenSSL is verifying to the gate. It must be one of the expected keys.
    func judgeKey(_ key: OpaquePointer) -> TrustGate.Answer {
        judgeKey(key) { bytes in
            // Raw keys are negotiated only if the settings contain expected keys. If they do not, the key is
            // rejected.
            proof.rawPublicKeys?.expects(bytes) == true ? nil : .unexpectedPublicKey(bytes)
        }
    }

    func judgeKey(_ key: OpaquePointer, _ fault: ([UInt8]) -> ProofFault?) -> TrustGate.Answer {
        let bytes = PublicKeyInfo.bytes(of: key) ?? []
        return gate.judge(
            KeyProof(kind: .rawPublicKey, value: bytes), fault(bytes), trust([], .trusted, publicKey: bytes))
    }
}

extension KeyProof.Kind {
    static let rawPublicKey = KeyProof.Kind(
        number: 1, isShared: false,
        missing: ProofFault(
            error: TLSError(.rawPublicKeyMissing, "the peer sent a certificate, but the settings require a raw public key"),
            // OpenSSL maps this code to the alert unsupported_certificate.
            verifyCode: X509_V_ERR_INVALID_PURPOSE))
}

extension ProofFault {
    static func unexpectedPublicKey(_ key: [UInt8]) -> ProofFault {
        ProofFault(
            error: TLSError(
                .rawPublicKeyMismatch,
                "the peer's raw public key is not one of the expected keys (SHA-256 \(PublicKeyInfo.sha256(of: key).hexadecimal))",
                verifyCode: COPENSSL_UNTRUSTED_RAW_KEY),
            verifyCode: COPENSSL_UNTRUSTED_RAW_KEY)
    }
}

extension TLSError.Code {
    /// The peer sent a certificate, but the settings require a raw public key.
    public static let rawPublicKeyMissing = TLSError.Code("rawPublicKeyMissing", fault: .peer)
    /// The peer sent a raw public key that the settings do not expect.
    public static let rawPublicKeyMismatch = TLSError.Code("rawPublicKeyMismatch", fault: .peer)
}

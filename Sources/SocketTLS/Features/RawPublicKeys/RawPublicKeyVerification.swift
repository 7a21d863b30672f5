// Rules of raw public keys:
//  1. The types that may be shown belong to the context, and so to the settings that were chosen by name.
//  2. OpenSSL does not judge a raw key: it would want a DANE record. Our verify callback, which it calls for
//     keys as for certificates, compares the key with the list and passes the result to the trust gate.
//     OpenSSL goes on to check that the peer has the key, as for certificates.
//  3. A side that knows no raw keys ignores the extension, and shows a certificate. So the gate refuses
//     certificates itself where a raw key is required.
//  4. A connection with such settings gets no ticket, and a client resumes nothing: no verdict on a key goes
//     anywhere.

internal import COpenSSL

extension TLSRawPublicKeys {
    static func areShownByServer(on ssl: OpaquePointer) -> Bool { COpenSSL_serverShowsRawKey(ssl) != 0 }

    /// Sets the types of certificates for both directions, the preferred one first.
    func negotiate(on context: OpaquePointer, isServer: Bool) throws(TLSError) {
        let raw = UInt8(COPENSSL_CERTIFICATE_TYPE_RAW)
        let both = [raw, UInt8(COPENSSL_CERTIFICATE_TYPE_X509)]
        if showsOwnKey { try Self.set(both, ofServers: isServer, on: context) }
        if expectsKeys { try Self.set(use == .required ? [raw] : both, ofServers: !isServer, on: context) }
    }

    private static func set(_ types: [UInt8], ofServers: Bool, on context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess(ofServers ? "SSL_CTX_set1_server_cert_type" : "SSL_CTX_set1_client_cert_type") {
            COpenSSL_CTX_setCertificateTypes(context, ofServers ? 1 : 0, types, types.count)
        }
    }
}

extension Judge {
    /// Passes the key that OpenSSL verifies to the gate; nil for certificates.
    func judgeKey(in store: OpaquePointer) -> TrustGate.Ruling? {
        // Without the setting no raw key is negotiated.
        guard let rawPublicKeys = proof.rawPublicKeys, let key = COpenSSL_rawKey(store) else { return nil }
        let bytes = PublicKeyInfo.bytes(of: key) ?? []
        return gate.judge(
            KeyProof(kind: .rawPublicKey, value: bytes), rawPublicKeys.expects(bytes) ? nil : .unexpectedPublicKey(bytes),
            trust([], .trusted, publicKey: bytes))
    }
}

extension KeyProof.Kind {
    static let rawPublicKey = KeyProof.Kind(
        number: 1, isShared: false,
        missing: ProofFault(
            error: TLSError(.rawPublicKeyMissing, "The peer shows a certificate, but the settings require a raw public key."),
            // Becomes the alert unsupported_certificate.
            verifyCode: X509_V_ERR_INVALID_PURPOSE))
}

extension ProofFault {
    static func unexpectedPublicKey(_ key: [UInt8]) -> ProofFault {
        ProofFault(
            error: TLSError(
                .rawPublicKeyMismatch,
                "The peer shows a raw public key that the settings do not expect, with the SHA-256 digest \(PublicKeyInfo.sha256(of: key).hexadecimal).",
                verifyCode: COPENSSL_UNTRUSTED_RAW_KEY),
            verifyCode: COPENSSL_UNTRUSTED_RAW_KEY)
    }
}

extension TLSError.Code {
    /// The peer showed a certificate, but the settings require a raw public key.
    public static let rawPublicKeyMissing = TLSError.Code("rawPublicKeyMissing", blame: .peer)
    /// The peer showed a raw public key that is not in the settings.
    public static let rawPublicKeyMismatch = TLSError.Code("rawPublicKeyMismatch", blame: .peer)
}

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

extension TLSError {
    static var withoutRawPublicKey: TLSError {
        TLSError(.rawPublicKeyMissing, "The peer shows a certificate, but the settings require a raw public key.")
    }

    static func unexpectedPublicKey(_ key: [UInt8]) -> TLSError {
        TLSError(
            .rawPublicKeyMismatch,
            "The peer shows a raw public key that the settings do not expect, with the SHA-256 digest \(TLSRawPublicKeys.digest(key).hexadecimal).",
            verifyCode: COPENSSL_UNTRUSTED_RAW_KEY)
    }
}

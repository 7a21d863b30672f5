internal import COpenSSL

/// A SubjectPublicKeyInfo in DER (RFC 5280, section 4.1): a public key and its algorithm.
package enum PublicKeyInfo {
    /// Returns OpenSSL's encoding of the public half of `key`, or `nil` if a provider does not reveal it.
    static func bytes(of key: OpaquePointer?) -> [UInt8]? {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = OpenSSLCall.attempt { i2d_PUBKEY(key, &encoding) }.value ?? 0
        guard length > 0, let encoding else { return nil }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }

    /// Returns OpenSSL's encoding of the public key in `der`, or `nil` if `der` is not exactly one key.
    package static func canonical(_ der: [UInt8]) -> [UInt8]? {
        der.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            guard let key = OpenSSLCall.attempt({ d2i_PUBKEY(nil, &cursor, bytes.count) }).value else { return nil }
            defer { EVP_PKEY_free(key) }
            guard let cursor, let start = bytes.baseAddress, cursor - start == bytes.count else { return nil }
            return Self.bytes(of: key)
        }
    }

    /// Whether a DER SubjectPublicKeyInfo contains an RSA key (if `ofRSA`) or an EC key (otherwise).
    package static func isKey(_ der: [UInt8], ofRSA: Bool) -> Bool {
        der.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            guard let key = OpenSSLCall.attempt({ d2i_PUBKEY(nil, &cursor, bytes.count) }).value else { return false }
            defer { EVP_PKEY_free(key) }
            return EVP_PKEY_is_a(key, ofRSA ? "RSA" : "EC") == 1
        }
    }

    static func sha256(of der: [UInt8]) -> [UInt8] { DigestFields.digest(of: der) }
}

extension TLSCertificate {
    /// The public key and its algorithm, as a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1), for use
    /// with `TLSRawPublicKeys`.
    public var publicKey: [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(handle.x509), &encoding)
        guard length > 0, let encoding else { return [] }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }
}

extension TLSPrivateKey {
    /// Whether the private and public keys match, which decoding does not check.
    package var isConsistent: Bool {
        guard let context = EVP_PKEY_CTX_new(handle.key, nil) else { return false }
        defer { EVP_PKEY_CTX_free(context) }
        return OpenSSLCall.attempt { EVP_PKEY_pairwise_check(context) == 1 ? true : nil }.value != nil
    }

    /// The public half and its algorithm, as a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1), for use
    /// with `TLSRawPublicKeys`.
    ///
    /// `nil` if the key is in a token that does not reveal the public half.
    public var publicKey: [UInt8]? { PublicKeyInfo.bytes(of: handle.key) }
}

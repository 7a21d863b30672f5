internal import COpenSSL

/// A SubjectPublicKeyInfo in DER (RFC 5280, section 4.1): a public key and its algorithm.
enum PublicKeyInfo {
    /// The form in which OpenSSL writes the key of `key`; nil if a provider does not show it.
    static func bytes(of key: OpaquePointer?) -> [UInt8]? {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = OpenSSLCall.attempt { i2d_PUBKEY(key, &encoding) }.value ?? 0
        guard length > 0, let encoding else { return nil }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }

    /// The form in which OpenSSL writes this key; nil if the bytes are anything but a key.
    static func canonical(_ der: [UInt8]) -> [UInt8]? {
        der.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            guard let key = OpenSSLCall.attempt({ d2i_PUBKEY(nil, &cursor, bytes.count) }).value else { return nil }
            defer { EVP_PKEY_free(key) }
            guard let cursor, let start = bytes.baseAddress, cursor - start == bytes.count else { return nil }
            return Self.bytes(of: key)
        }
    }

    static func sha256(of der: [UInt8]) -> [UInt8] { DigestFields.digest(of: der) }
}

extension Certificate {
    /// The public key with its algorithm, a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1):
    /// `TLSRawPublicKeys` takes it.
    public var publicKey: [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(handle.x509), &encoding)
        guard length > 0, let encoding else { return [] }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }
}

extension PrivateKey {
    /// The public half with its algorithm, a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1):
    /// `TLSRawPublicKeys` takes it. Nil for a key of a token that does not show it.
    public var publicKey: [UInt8]? { PublicKeyInfo.bytes(of: handle.key) }
}

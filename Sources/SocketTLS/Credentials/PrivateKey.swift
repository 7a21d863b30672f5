internal import COpenSSL

/// A private key: RSA, EC, Ed25519, or any other kind that OpenSSL can sign with.
///
/// Two keys are equal when their public halves are. The key cannot be read back.
public struct PrivateKey: Sendable, Hashable {
    let handle: EVPKeyHandle
    /// The SubjectPublicKeyInfo of the public half.
    private let publicKeyBytes: [UInt8]

    /// The first private key in a PEM text: PKCS#8 or a traditional form, encrypted or not.
    ///
    /// The library wipes its own copies of the text and the passphrase; the strings themselves belong to the
    /// caller. Throws `invalidPrivateKey` if there is no key, or if the passphrase is missing or wrong.
    public init(pem: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(SecretBytes(pem), passphrase: passphrase, source: "The text")
    }

    /// The first private key in a PEM file; see `init(pem:passphrase:)`.
    ///
    /// Throws `invalidPrivateKey` if the file cannot be read, too.
    public init(file path: String, passphrase: String? = nil) throws(TLSError) {
        let contents = try SecretBytes.contents(ofFile: path, or: .invalidPrivateKey)
        try self.init(contents, passphrase: passphrase, source: "The file \"\(path)\"")
    }

    init(_ text: SecretBytes, passphrase: String?, source: String) throws(TLSError) {
        let reader = try PEMReader(text, passphrase: passphrase, or: .invalidPrivateKey)
        let (key, entries) = reader.privateKey()
        guard let key else {
            throw TLSError(
                .invalidPrivateKey, Self.complaint(source, reader.askedForPassphrase, passphrase),
                operation: "PEM_read_bio_PrivateKey", openSSLStack: entries.map(\.text))
        }
        handle = EVPKeyHandle(owning: key)
        publicKeyBytes = Self.encodePublicHalf(key)
    }

    /// Equal means the same public half.
    public static func == (left: PrivateKey, right: PrivateKey) -> Bool {
        left.publicKeyBytes == right.publicKeyBytes
    }

    /// Hashes the public half.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(publicKeyBytes)
    }

    private static func complaint(_ source: String, _ isEncrypted: Bool, _ passphrase: String?) -> String {
        switch (isEncrypted, passphrase) {
        case (true, nil): "\(source) has an encrypted private key, and no passphrase was given."
        case (true, _): "\(source) has an encrypted private key, and the passphrase is wrong or the key is damaged."
        case (false, _): "\(source) has no private key in PEM form."
        }
    }

    private static func encodePublicHalf(_ key: OpaquePointer) -> [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = i2d_PUBKEY(key, &encoding)
        guard length > 0, let encoding else { return [] }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }
}

/// Owns one reference to an `EVP_PKEY`, which OpenSSL wipes with the last reference.
final class EVPKeyHandle: @unchecked Sendable {
    // Unchecked: the key never changes after it is decoded, and OpenSSL locks what it caches in it.
    let key: OpaquePointer

    init(owning key: OpaquePointer) {
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }
}

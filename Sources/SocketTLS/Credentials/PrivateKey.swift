internal import COpenSSL

/// A private key: RSA, EC, Ed25519, or any other kind that OpenSSL can sign with.
///
/// Two keys are equal when their public halves are. The key cannot be read back. The library wipes its own
/// copies of keys and passphrases; the strings and arrays that you pass belong to you.
///
/// A passphrase is a string, or a closure that returns one: the closure is called once, and only if the key
/// is encrypted. An error of the closure ends up in the message of the `invalidPrivateKey` that is thrown; a
/// `TLSError` of it is thrown itself. Nothing is ever asked on the terminal.
public struct PrivateKey: Sendable, Hashable {
    let handle: EVPKeyHandle
    /// The SubjectPublicKeyInfo of the public half.
    private let publicKeyBytes: [UInt8]

    /// The first private key in a PEM text: PKCS#8 (RFC 5958) or a traditional form, encrypted or not.
    ///
    /// Throws `invalidPrivateKey` if the text has no key, or if the passphrase is missing or wrong.
    public init(pem: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(SecretBytes(pem), PassphraseSource(passphrase), source: "The text")
    }

    /// The first private key in a PEM text, with a closure for the passphrase; see `init(pem:passphrase:)`.
    public init(pem: String, passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in
            try PrivateKey(SecretBytes(pem), source, source: "The text")
        }
    }

    /// A private key in DER, which must be the whole of `der`: PKCS#8 (RFC 5958), encrypted or not, PKCS#1
    /// (RFC 8017, appendix A.1.2) or SEC1 (RFC 5915).
    ///
    /// Throws `invalidPrivateKey` if it is anything else, or if the passphrase is missing or wrong.
    public init(der: [UInt8], passphrase: String? = nil) throws(TLSError) {
        try self.init(der: SecretBytes(copying: der), PassphraseSource(passphrase), source: "The data")
    }

    /// A private key in DER, with a closure for the passphrase; see `init(der:passphrase:)`.
    public init(der: [UInt8], passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in
            try PrivateKey(der: SecretBytes(copying: der), source, source: "The data")
        }
    }

    /// The first private key in a PEM file, or the one in a DER file; see `init(pem:passphrase:)` and
    /// `init(der:passphrase:)`.
    ///
    /// Throws `invalidPrivateKey` if the file cannot be read, too.
    public init(file path: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(file: path, PassphraseSource(passphrase))
    }

    /// A private key in a file, with a closure for the passphrase; see `init(file:passphrase:)`.
    public init(file path: String, passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try PrivateKey(file: path, source) }
    }

    /// The first private key that a URI names, through OpenSSL's stores (ossl_store(7)).
    ///
    /// `file:` works everywhere. Another scheme needs a provider that openssl.cnf activates; for `pkcs11:`
    /// (RFC 7512) the engine of libp11 will do (Debian's libengine-pkcs11-openssl), which finds the tokens
    /// that p11-kit knows. The passphrase is the PIN of a token. A key that stays in its token signs
    /// there, off the event loop, on one of as many threads as there are processors: other handshakes that
    /// compute for long wait for a slow token too, and other connections do not. Only a client that is asked
    /// for its certificate after the handshake signs on the event loop.
    ///
    /// Throws `invalidPrivateKey` if the URI leads to no key, if OpenSSL has no provider for the scheme, or
    /// if the passphrase is missing or wrong.
    public init(uri: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(uri: uri, PassphraseSource(passphrase))
    }

    /// The first private key that a URI names, with a closure for the passphrase; see
    /// `init(uri:passphrase:)`.
    public init(uri: String, passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try PrivateKey(uri: uri, source) }
    }

    /// Takes the caller's reference to `key`.
    init(owning key: OpaquePointer, isOfToken: Bool = false) {
        let handle = EVPKeyHandle(owning: key, isOfToken: isOfToken)
        self.handle = handle
        publicKeyBytes = Self.encodePublicHalf(of: handle)
    }

    /// Equal means the same public half.
    public static func == (left: PrivateKey, right: PrivateKey) -> Bool {
        left.publicKeyBytes == right.publicKeyBytes
    }

    /// Hashes the public half.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(publicKeyBytes)
    }

    /// OpenSSL's name for the kind of key, such as "RSA" or "EC": a server has one key of each.
    var kind: String {
        EVP_PKEY_get0_type_name(handle.key).map { String(cString: $0) } ?? ""
    }

    /// Whether a signature may take more than a millisecond: with a long RSA key, or with one that OpenSSL
    /// does not compute with itself, such as the key of a token.
    var signsSlowly: Bool {
        let isRSA = EVP_PKEY_is_a(handle.key, "RSA") == 1 || EVP_PKEY_is_a(handle.key, "RSA-PSS") == 1
        if handle.isOfToken || isRSA && EVP_PKEY_get_bits(handle.key) > 2048 { return true }
        guard let provider = EVP_PKEY_get0_provider(handle.key), let name = OSSL_PROVIDER_get0_name(provider) else {
            return false
        }
        return !["default", "fips"].contains(String(cString: name))
    }

    private static func encodePublicHalf(of handle: EVPKeyHandle) -> [UInt8] {
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = OpenSSLCall.attempt { i2d_PUBKEY(handle.key, &encoding) }.value ?? 0
        guard length > 0, let encoding else {
            // A provider may show nothing of its keys. Such a key is equal only to its own copies.
            return withUnsafeBytes(of: ObjectIdentifier(handle)) { Array($0) }
        }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }
}

/// Owns one reference to an `EVP_PKEY`, which OpenSSL wipes with the last reference.
final class EVPKeyHandle: @unchecked Sendable {
    // Unchecked: the key never changes after it is decoded, and OpenSSL locks what it caches in it.
    let key: OpaquePointer

    /// A token signs, and may take its time.
    let isOfToken: Bool

    init(owning key: OpaquePointer, isOfToken: Bool = false) {
        self.key = key
        self.isOfToken = isOfToken
    }

    deinit { EVP_PKEY_free(key) }
}

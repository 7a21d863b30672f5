internal import COpenSSL

/// A private key: RSA, EC, Ed25519, or any other kind of key that OpenSSL can sign with.
///
/// Two keys are equal if their public halves are equal. A private key cannot be exported. The library wipes
/// its own copies of keys and passphrases, but not the strings and arrays that you pass.
///
/// A passphrase is a string, or a closure that returns a string. The closure is called once, and only if the
/// key is encrypted. If the closure throws a `TLSError`, the initializer throws this error. The message of
/// any other error is included in the `invalidPrivateKey` error that is thrown. The library never prompts on
/// the terminal.
public struct TLSPrivateKey: Sendable, Hashable {
    let handle: EVPKeyHandle
    /// The public half as a SubjectPublicKeyInfo.
    private let publicKeyBytes: [UInt8]

    /// Creates a key from the first private key in PEM text: PKCS#8 (RFC 5958) or a traditional form,
    /// encrypted or not.
    ///
    /// Throws `invalidPrivateKey` if the text contains no key, or if the passphrase is missing or wrong.
    public init(pem: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(SecretBytes(pem), PassphraseSource(passphrase), source: "the text")
    }

    /// Creates a key from PEM text, with a closure for the passphrase. See `init(pem:passphrase:)`.
    public init(pem: String, passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in
            try TLSPrivateKey(SecretBytes(pem), source, source: "the text")
        }
    }

    /// Creates a key from its DER encoding: PKCS#8 (RFC 5958), encrypted or not, PKCS#1 (RFC 8017, appendix
    /// A.1.2) or SEC1 (RFC 5915).
    ///
    /// Throws `invalidPrivateKey` if `der` is not exactly one key, or if the passphrase is missing or wrong.
    public init(der: [UInt8], passphrase: String? = nil) throws(TLSError) {
        try self.init(der: SecretBytes(copying: der), PassphraseSource(passphrase), source: "the data")
    }

    /// Creates a key from its DER encoding, with a closure for the passphrase. See `init(der:passphrase:)`.
    public init(der: [UInt8], passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in
            try TLSPrivateKey(der: SecretBytes(copying: der), source, source: "the data")
        }
    }

    /// Creates a key from the first private key in a PEM file, or from a DER file. See
    /// `init(pem:passphrase:)` and `init(der:passphrase:)`.
    ///
    /// Also throws `invalidPrivateKey` if the file cannot be read.
    public init(file path: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(file: path, PassphraseSource(passphrase))
    }

    /// Creates a key from a file, with a closure for the passphrase. See `init(file:passphrase:)`.
    public init(file path: String, passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try TLSPrivateKey(file: path, source) }
    }

    /// Creates a key from the first private key at a URI, which is loaded through OpenSSL's stores
    /// (ossl_store(7)).
    ///
    /// `file:` URIs always work. Other schemes need a provider that is activated in openssl.cnf. For
    /// `pkcs11:` (RFC 7512), the libp11 engine also works (Debian's libengine-pkcs11-openssl). It finds the
    /// tokens known to p11-kit. The passphrase is the token's PIN.
    ///
    /// A key in a token signs inside the token. These signatures run outside the event loop, on a pool with
    /// one thread per processor and at least two threads. A slow token can therefore delay other handshakes
    /// that need long computations, but not established connections. An exception is a client that receives a
    /// certificate request after the handshake: it signs on the event loop.
    ///
    /// Throws `invalidPrivateKey` if the URI does not lead to a key, if OpenSSL has no provider for the
    /// scheme, or if the passphrase is missing or wrong.
    public init(uri: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(uri: uri, PassphraseSource(passphrase))
    }

    /// Creates a key from a URI, with a closure for the passphrase. See `init(uri:passphrase:)`.
    public init(uri: String, passphrase: () throws -> String) throws(TLSError) {
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try TLSPrivateKey(uri: uri, source) }
    }

    init(owning key: OpaquePointer, isOfToken: Bool = false) {
        let handle = EVPKeyHandle(owning: key, isOfToken: isOfToken)
        self.handle = handle
        publicKeyBytes = Self.encodePublicHalf(of: handle)
    }

    /// Returns whether the public halves are equal.
    public static func == (left: TLSPrivateKey, right: TLSPrivateKey) -> Bool {
        left.publicKeyBytes == right.publicKeyBytes
    }

    /// Hashes the public half.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(publicKeyBytes)
    }

    /// OpenSSL's name for the kind of key, such as "RSA" or "EC". A server uses one key of each kind.
    var kind: String {
        EVP_PKEY_get0_type_name(handle.key).map { String(cString: $0) } ?? ""
    }

    /// Whether a signature may take more than a millisecond. This applies to long RSA keys, and to keys whose
    /// operations are performed outside OpenSSL, such as keys on a hardware token.
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
            // A provider may not reveal the public half of its keys. Such a key is equal only to its own
            // copies.
            return withUnsafeBytes(of: ObjectIdentifier(handle)) { Array($0) }
        }
        defer { COpenSSL_free(encoding) }
        return Array(UnsafeBufferPointer(start: encoding, count: Int(length)))
    }
}

/// Owns one reference to an `EVP_PKEY`. OpenSSL wipes the key when its last reference is released.
final class EVPKeyHandle: @unchecked Sendable {
    // Unchecked: the key never changes after it is decoded, and OpenSSL locks the fields that it caches.
    let key: OpaquePointer

    /// Whether a token holds the key. Its signatures may be slow.
    let isOfToken: Bool

    init(owning key: OpaquePointer, isOfToken: Bool = false) {
        self.key = key
        self.isOfToken = isOfToken
    }

    deinit { EVP_PKEY_free(key) }
}

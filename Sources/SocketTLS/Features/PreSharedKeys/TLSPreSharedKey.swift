internal import COpenSSL

/// A secret key that both sides already have, and the identity that they use to look it up (RFC 8446,
/// sections 2.2 and 4.2.11; RFC 4279 for TLS 1.2).
///
/// A peer that has the key is trusted, without certificates. Each key should therefore belong to exactly
/// **one** client and **one** server, which keep these roles:
///
/// - If more than two programs share a key, each of them can impersonate the rest (RFC 9257, section
///   4.1).
/// - A program that uses the same key as a client and as a server can be tricked into talking to itself
///   instead of its peer ("Selfie", RFC 9257, section 4.1). Use a separate key for each direction.
/// - Generate keys at random. Otherwise an attacker who has recorded a handshake can guess words and
///   passwords offline until one matches (RFC 8446, section 4.2.11). This library deliberately has no
///   function that derives a key from a password.
///
/// The identity is sent in plaintext, so it should not contain confidential information.
///
/// Two pre-shared keys are equal if their identities, keys and hash algorithms are equal. The key is
/// wiped before its memory is freed.
public final class TLSPreSharedKey: Sendable, Hashable {
    /// The hash algorithm associated with a key. The key is never used with a different algorithm (RFC
    /// 8446, section 4.2.11).
    public enum HashAlgorithm: Sendable, Hashable {
        /// SHA-256, for the cipher suites TLS_AES_128_GCM_SHA256 and TLS_CHACHA20_POLY1305_SHA256. This
        /// is the default in the standard.
        case sha256
        /// SHA-384, for the cipher suite TLS_AES_256_GCM_SHA384. TLS 1.3 only. OpenSSL's command-line
        /// programs support it only with `-psk_session`.
        case sha384
    }

    /// The name of the key.
    public let identity: [UInt8]
    /// The hash algorithm associated with the key.
    public let hash: HashAlgorithm
    // Safe, because the bytes are written once, before the object is shared.
    /// A copy of `identity` at a stable address, which OpenSSL requires.
    nonisolated(unsafe) let stableIdentity: SecretBytes
    nonisolated(unsafe) let secret: SecretBytes

    /// The allowed key lengths. A key of 16 bytes has the minimum of 128 bits from RFC 9257, section 6.
    /// The maximum is OpenSSL's limit.
    static let lengths = 16...512
    /// The allowed identity lengths. A server that uses this library rejects a ClientHello of more than 32
    /// KiB.
    static let identityLengths = 1...8192
    /// The identity length that every TLS 1.2 implementation supports (RFC 4279, section 5.3).
    static let identityLimitOfTLS12 = 128

    /// Creates a pre-shared key.
    ///
    /// - Parameters:
    ///   - identity: 1 to 8,192 bytes, usually the name of the client. In TLS 1.2, at most 128 bytes and
    ///     no zero byte.
    ///   - key: 16 to 512 bytes that cannot be guessed. Wipe your own copy after the call.
    ///   - hash: The hash algorithm. Both sides must use the same one.
    /// - Throws: `invalidSettings` if the identity or the key has an invalid length.
    public init(identity: [UInt8], key: [UInt8], hash: HashAlgorithm = .sha256) throws(TLSError) {
        guard Self.identityLengths.contains(identity.count) else {
            throw Self.invalid("the identity must be 1 to 8,192 bytes long, but is \(identity.count)")
        }
        guard Self.lengths.contains(key.count) else {
            throw Self.invalid("the key must be 16 to 512 bytes long, but is \(key.count)")
        }
        self.identity = identity
        self.hash = hash
        stableIdentity = SecretBytes(copying: identity)
        secret = SecretBytes(copying: key)
    }

    /// Creates a pre-shared key with a text identity, which is encoded as UTF-8.
    ///
    /// - Throws: `invalidSettings` if the identity or the key has an invalid length.
    public convenience init(identity: String, key: [UInt8], hash: HashAlgorithm = .sha256) throws(TLSError) {
        try self.init(identity: Array(identity.utf8), key: key, hash: hash)
    }

    /// Creates a random key for an unknown identity. Returns `nil` if random bytes are not available.
    init?(decoyFor identity: [UInt8], hash: HashAlgorithm) {
        guard let secret = SecretBytes(randomCount: 32) else { return nil }
        self.identity = identity
        self.hash = hash
        self.secret = secret
        stableIdentity = SecretBytes(copying: identity)
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the pre-shared key cannot be used: \(complaint)", operation: "TLSPreSharedKey")
    }

    /// Returns whether identity, key and hash algorithm are equal. The duration of the comparison does not
    /// depend on the bytes of the keys.
    public static func == (left: TLSPreSharedKey, right: TLSPreSharedKey) -> Bool {
        left === right
            || (left.identity == right.identity && left.hash == right.hash && left.secret.count == right.secret.count
                && left.secret.withBytes { one in
                    right.secret.withBytes { other in CRYPTO_memcmp(one.baseAddress, other.baseAddress, one.count) == 0 }
                })
    }

    /// Hashes the identity and the hash algorithm, but not the key.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(identity)
        hasher.combine(hash)
    }
}

extension TLSPreSharedKey.HashAlgorithm {
    /// The suffix of the cipher suite names that use the algorithm.
    var suffix: String {
        switch self {
        case .sha256: "SHA256"
        case .sha384: "SHA384"
        }
    }

    /// A TLS 1.3 cipher suite with this algorithm. OpenSSL derives the hash algorithm of a session from
    /// its suite.
    var cipherSuite: [UInt8] {
        switch self {
        case .sha256: [0x13, 0x01]
        case .sha384: [0x13, 0x02]
        }
    }
}

internal import COpenSSL

/// A key that both sides have had from elsewhere, and the identity by which they find it (RFC 8446, sections
/// 2.2 and 4.2.11; RFC 4279 for TLS 1.2).
///
/// Anyone who has the key is trusted: there are no certificates. So each key should belong to **one** client
/// and **one** server, and to these roles:
///
/// - With a key that more than two programs have, each of them can pose as any other (RFC 9257, section 4.1).
/// - A program that is a client and a server with the same key can be led to talk to itself, while it takes
///   the other end for its partner ("Selfie", RFC 9257, section 4.1). Have one key for each direction.
/// - Make keys at random. Anyone who has recorded a handshake can try words and passwords at leisure, to find
///   the key (RFC 8446, section 4.2.11). This library has no function that makes a key of a password.
///
/// The identity is sent in plaintext, so it should say nothing that others may not know.
///
/// Two are equal if their identities, keys and hash algorithms are. The key is wiped before its memory is
/// freed.
public final class TLSPreSharedKey: @unchecked Sendable, Hashable {
    // Unchecked: the bytes are written once, before anyone else sees them.

    /// The hash algorithm that a key belongs to: it is used with no other (RFC 8446, section 4.2.11).
    public enum HashAlgorithm: Sendable, Hashable {
        /// SHA-256: for the cipher suites TLS_AES_128_GCM_SHA256 and TLS_CHACHA20_POLY1305_SHA256. The
        /// standard's default.
        case sha256
        /// SHA-384: for the cipher suite TLS_AES_256_GCM_SHA384. OpenSSL's programs use it only with
        /// `-psk_session`, and it is for TLS 1.3 only.
        case sha384
    }

    /// The name of the key.
    public let identity: [UInt8]
    /// The hash algorithm that the key belongs to.
    public let hash: HashAlgorithm
    /// For OpenSSL, which wants an address.
    let stableIdentity: SecretBytes
    let secret: SecretBytes

    /// The lengths of keys. A key of 16 bytes has the 128 bits that RFC 9257, section 6, demands at least.
    /// The longest is OpenSSL's limit.
    static let lengths = 16...512
    /// Servers of this library refuse a ClientHello of more than 16 KiB.
    static let identityLengths = 1...8192
    /// The length that everyone takes in TLS 1.2 (RFC 4279, section 5.3).
    static let identityLimitOfTLS12 = 128

    /// A key from its parts.
    ///
    /// - Parameters:
    ///   - identity: 1 to 8,192 bytes; in TLS 1.2 at most 128, without a zero. Usually the name of the
    ///     client.
    ///   - key: 16 to 512 bytes that cannot be guessed. Wipe your own copy.
    ///   - hash: The hash algorithm, which both sides must agree on.
    /// - Throws: `invalidSettings` for an identity or a key of another length.
    public init(identity: [UInt8], key: [UInt8], hash: HashAlgorithm = .sha256) throws(TLSError) {
        guard Self.identityLengths.contains(identity.count) else {
            throw Self.invalid("the identity has \(identity.count) bytes, and must have 1 to 8,192")
        }
        guard Self.lengths.contains(key.count) else {
            throw Self.invalid("the key has \(key.count) bytes, and must have 16 to 512")
        }
        self.identity = identity
        self.hash = hash
        stableIdentity = SecretBytes(copying: identity)
        secret = SecretBytes(copying: key)
    }

    /// A key whose identity is text, in UTF-8.
    ///
    /// - Throws: `invalidSettings` for an identity or a key of a length that cannot be used.
    public convenience init(identity: String, key: [UInt8], hash: HashAlgorithm = .sha256) throws(TLSError) {
        try self.init(identity: Array(identity.utf8), key: key, hash: hash)
    }

    /// A random key, for an identity that has none. Nil without random numbers.
    init?(decoyFor identity: [UInt8], hash: HashAlgorithm) {
        guard let secret = SecretBytes(randomCount: 32) else { return nil }
        self.identity = identity
        self.hash = hash
        self.secret = secret
        stableIdentity = SecretBytes(copying: identity)
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The pre-shared key cannot be used: \(complaint).", operation: "TLSPreSharedKey")
    }

    /// True for the same identity, key and hash algorithm. The time it takes does not depend on the key.
    public static func == (left: TLSPreSharedKey, right: TLSPreSharedKey) -> Bool {
        left === right
            || (left.identity == right.identity && left.hash == right.hash && left.secret.count == right.secret.count
                && left.secret.withBytes { one in
                    right.secret.withBytes { other in CRYPTO_memcmp(one.baseAddress, other.baseAddress, one.count) == 0 }
                })
    }

    /// Hashes the identity, and not the key.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(identity)
        hasher.combine(hash)
    }
}

extension TLSPreSharedKey.HashAlgorithm {
    /// How the names of its cipher suites end.
    var suffix: String {
        switch self {
        case .sha256: "SHA256"
        case .sha384: "SHA384"
        }
    }

    /// A cipher suite of TLS 1.3 with this algorithm: OpenSSL asks for one to learn the algorithm.
    var cipherSuite: [UInt8] {
        switch self {
        case .sha256: [0x13, 0x01]
        case .sha384: [0x13, 0x02]
        }
    }
}

internal import COpenSSL

/// Public keys without certificates (RFC 7250; RFC 8446, section 4.4.2) that the peer may have.
///
/// Each side knows the other's key beforehand, as with SSH. There is no authority, no name and no date: a key
/// is trusted until it is taken out of the list.
///
/// ```swift
/// var client = TLSSettings.client(serverName: "hub.example.org")
/// client.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [keyOfTheHub]))
/// var server = TLSSettings.server(identity: hub)
/// server.clients = .anyoneWithOwnRawPublicKey
/// ```
///
/// It works in TLS 1.2 and 1.3 and needs OpenSSL 3.2 or newer, of the library that is loaded: with an older
/// one `startTLS` throws `invalidSettings`, which names both versions.
///
/// - `TLSSession.peerPublicKey` shows the key for which the peer was accepted. Another key fails with
///   `rawPublicKeyMismatch`, and with the alert `certificate_unknown` to the peer.
/// - The trust callback is asked about an expected key too, if `TLSSettings.trustEvaluation` is `.delegate`
///   or `.manual`. It gets `PeerTrust.publicKey`, and can only refuse. It is not asked about another key.
/// - There are no session tickets with these settings, and a client with them resumes nothing.
public struct TLSRawPublicKeys: Sendable, Hashable {
    /// Whether the peer may show a certificate instead.
    package enum Use: Sendable, Hashable {
        case required
        case preferred
    }

    /// The SHA-256 digests of the expected keys, of the SubjectPublicKeyInfo in DER each.
    public let expectedSHA256: Set<[UInt8]>
    /// Whether this side shows the public key of its `identity` without the certificate. A peer that does not
    /// take raw public keys gets the certificate nevertheless.
    public internal(set) var showsOwnKey: Bool
    /// It means nothing without expected keys.
    package var use: Use

    /// The keys that the peer may have.
    ///
    /// - Parameters:
    ///   - keys: One or more SubjectPublicKeyInfos in DER (RFC 5280, section 4.1), such as
    ///     `Certificate.publicKey` and `PrivateKey.publicKey` return.
    ///   - showsOwnKey: Whether this side shows the key of its `identity` without the certificate.
    /// - Throws: `invalidSettings` for an empty list, and for bytes that are not a public key.
    public init(expected keys: [[UInt8]], showsOwnKey: Bool = false) throws(TLSError) {
        var digests: Set<[UInt8]> = []
        for key in keys {
            guard let canonical = PublicKeyInfo.canonical(key) else {
                throw Self.invalid("\(key.count) bytes are not a SubjectPublicKeyInfo in DER")
            }
            digests.insert(PublicKeyInfo.sha256(of: canonical))
        }
        try self.init(expectedSHA256: digests, showsOwnKey: showsOwnKey)
    }

    /// The keys that the peer may have, by their digests.
    ///
    /// - Parameters:
    ///   - digests: One or more SHA-256 digests, of 32 bytes, of a SubjectPublicKeyInfo in DER each, such as
    ///     `Certificate.publicKeySHA256` returns.
    ///   - showsOwnKey: Whether this side shows the key of its `identity` without the certificate.
    /// - Throws: `invalidSettings` for an empty list, and for a digest of another length.
    public init(expectedSHA256 digests: Set<[UInt8]>, showsOwnKey: Bool = false) throws(TLSError) {
        guard !digests.isEmpty else { throw Self.invalid("no key is expected, so that no peer could ever be accepted") }
        if let wrong = digests.first(where: { $0.count != 32 }) {
            throw Self.invalid("a digest must have the 32 bytes of SHA-256, and one has \(wrong.count)")
        }
        self.init(digests, .required, showsOwnKey)
    }

    init(_ digests: Set<[UInt8]>, _ use: Use, _ showsOwnKey: Bool) {
        expectedSHA256 = digests
        self.use = use
        self.showsOwnKey = showsOwnKey
    }

    /// This side shows its own key, and expects none.
    static let ownKey = TLSRawPublicKeys([], .required, true)

    /// The same keys.
    package func used(_ use: Use) -> TLSRawPublicKeys { TLSRawPublicKeys(expectedSHA256, use, showsOwnKey) }

    /// Whether the OpenSSL that is loaded has raw public keys: 3.2 and newer do.
    public static var isSupported: Bool { COpenSSL_hasRawPublicKeys() == 1 }

    var expectsKeys: Bool { !expectedSHA256.isEmpty }

    func expects(_ key: [UInt8]) -> Bool { expectedSHA256.contains(PublicKeyInfo.sha256(of: key)) }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The raw public keys cannot be used: \(complaint).", operation: "TLSRawPublicKeys")
    }
}

extension TLSRawPublicKeys: Digestible {
    func append(to fields: inout DigestFields) {
        _ = TLSRawPublicKeys(fields.add(expectedSHA256), fields.add(use), fields.add(showsOwnKey))
    }
}

extension TLSRawPublicKeys.Use: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .required: fields.append(1)
        case .preferred: fields.append(2)
        }
    }
}

internal import COpenSSL

/// Public keys without certificates (RFC 7250; RFC 8446, section 4.4.2) that are accepted from the peer.
///
/// Each side knows the other's key in advance, as with SSH. Certificate authorities, names and expiry
/// dates are not involved: a key is trusted until it is removed from the list.
///
/// ```swift
/// var client = TLSSettings.client(serverName: "hub.example.org")
/// client.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [keyOfTheHub]))
/// var server = TLSSettings.server(identity: hub)
/// server.presentsRawPublicKey = true
/// ```
///
/// Raw public keys work with TLS 1.2 and 1.3. They need OpenSSL 3.2 or newer at run time: with an older
/// library, `startTLS` throws `invalidSettings` with a message that contains the required and the loaded
/// version.
///
/// - `TLSSession.peerPublicKey` is the key that authenticated the peer. Any other key fails with
///   `rawPublicKeyMismatch`, and the peer receives the alert `certificate_unknown`.
/// - If `TLSSettings.trustEvaluation` is `.delegate` or `.manual`, the trust callback is also called for an
///   expected key. The callback receives the key in `PeerTrust.publicKey`, and can reject it. It is not
///   called for unexpected keys.
/// - Raw public keys cannot be combined with `TLSSettings.sessionTickets`, and a client resumes no sessions.
public struct TLSRawPublicKeys: Sendable, Hashable {
    /// The SHA-256 digests of the expected keys, each computed over the SubjectPublicKeyInfo in DER.
    public let expectedSHA256: Set<[UInt8]>
    package var use: KeyUse

    /// Creates a list of keys that are accepted from the peer.
    ///
    /// - Parameter keys: One or more SubjectPublicKeyInfo structures in DER (RFC 5280, section 4.1), such as
    ///   `TLSCertificate.publicKey` and `TLSPrivateKey.publicKey` return.
    /// - Throws: `invalidSettings` if the list is empty or an element is not a public key.
    public init(expected keys: [[UInt8]]) throws(TLSError) {
        var digests: Set<[UInt8]> = []
        for key in keys {
            guard let canonical = PublicKeyInfo.canonical(key) else {
                throw Self.invalid("a key (\(key.count) bytes) is not a DER-encoded SubjectPublicKeyInfo")
            }
            digests.insert(PublicKeyInfo.sha256(of: canonical))
        }
        try self.init(expectedSHA256: digests)
    }

    /// Creates a list of keys that are accepted from the peer, identified by their digests.
    ///
    /// - Parameter digests: One or more 32-byte SHA-256 digests, each of a SubjectPublicKeyInfo in DER, such
    ///   as `TLSCertificate.publicKeySHA256`.
    /// - Throws: `invalidSettings` if the set is empty or a digest has the wrong length.
    public init(expectedSHA256 digests: Set<[UInt8]>) throws(TLSError) {
        guard !digests.isEmpty else { throw Self.invalid("the list of expected keys is empty: pass at least one key") }
        if let wrong = digests.first(where: { $0.count != 32 }) {
            throw Self.invalid("a digest must be 32 bytes long (SHA-256), but is \(wrong.count)")
        }
        self.init(digests, .required)
    }

    init(_ digests: Set<[UInt8]>, _ use: KeyUse) {
        expectedSHA256 = digests
        self.use = use
    }

    package func used(_ use: KeyUse) -> TLSRawPublicKeys { TLSRawPublicKeys(expectedSHA256, use) }

    /// Whether the loaded OpenSSL library supports raw public keys, which requires version 3.2 or newer.
    public static var isSupported: Bool { COpenSSL_hasRawPublicKeys() == 1 }

    func expects(_ key: [UInt8]) -> Bool { expectedSHA256.contains(PublicKeyInfo.sha256(of: key)) }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the raw public keys cannot be used: \(complaint)", operation: "TLSRawPublicKeys")
    }
}

extension TLSRawPublicKeys: Digestible {
    func append(to fields: inout DigestFields) {
        _ = TLSRawPublicKeys(fields.add(expectedSHA256), fields.add(use))
    }
}

internal import COpenSSL

final class PreSharedKeyNegotiation {
    let keys: TLSPreSharedKeys
    /// On a client, the key that it has offered. On a server, the key for one of the client's identities.
    private(set) var key: TLSPreSharedKey?
    /// Whether `key` is random, so this handshake fails like a handshake with a wrong key.
    private(set) var isDecoy = false
    private(set) var isOfTLS12 = false
    private(set) var firstIdentity: [UInt8]?
    /// The key that a `KeyLookup` has found for an identity.
    var lookedUp: TLSPreSharedKey?
    /// The messages of a server's handshake that are needed to verify the client's binders.
    var binders = KeyBinders()

    init(_ keys: TLSPreSharedKeys) {
        self.keys = keys
    }

    func offer(inTLS12: Bool) -> TLSPreSharedKey? {
        (key, isOfTLS12) = (keys.only, inTLS12)
        return key
    }

    /// Looks for the first known key with a valid binder. If no binder is valid, the first known key is used,
    /// and OpenSSL fails the handshake.
    ///
    /// - Parameter isLast: Whether the client can only be accepted with a key. If so, and if no identity is
    ///   known, the first identity is given a decoy key.
    func look(for list: PreSharedKeyList, isLast: Bool) {
        begin(with: list.identities.first, inTLS12: false)
        for (index, identity) in list.identities.enumerated() {
            guard let known = keys.key(of: identity) else { continue }
            if binders.prove(known, at: index, of: list) { return key = known }
            if key == nil { key = known }
        }
        if isLast { makeDecoy() }
    }

    /// Looks up the key for the identity that a TLS 1.2 client sent. The client can only be accepted with a
    /// key, so an unknown identity is given a decoy key.
    func lookInTLS12(for identity: [UInt8]) {
        begin(with: identity, inTLS12: true)
        key = lookedUp?.identity == identity ? lookedUp : keys.key(of: identity)
        makeDecoy()
    }

    private func begin(with first: [UInt8]?, inTLS12: Bool) {
        (key, isDecoy, firstIdentity, isOfTLS12) = (nil, false, first, inTLS12)
    }

    private func makeDecoy() {
        guard key == nil, let firstIdentity else { return }
        key = TLSPreSharedKey(decoyFor: firstIdentity, hash: keys.hash)
        isDecoy = true
    }

    /// Returns the key that both sides used in the completed handshake of `ssl`; `nil` if they used no
    /// key.
    func proof(on ssl: OpaquePointer) -> KeyProof? {
        binders.forget()
        guard Self.isUsed(on: ssl), let key, !isDecoy else { return nil }
        return KeyProof(kind: .preSharedKey, value: key.identity)
    }

    /// Whether the completed handshake of `ssl` used an external key. In TLS 1.3, the sessions created
    /// here are marked to distinguish them from sessions that arrived in a ticket.
    static func isUsed(on ssl: OpaquePointer) -> Bool {
        guard SSL_get0_peer_certificate(ssl) == nil else { return false }
        if SSL_version(ssl) == TLS1_3_VERSION {
            return SSL_session_reused(ssl) == 1 && SSL_get_session(ssl).map { isMarked($0) } == true
        }
        return SSL_CIPHER_get_auth_nid(SSL_get_current_cipher(ssl)) == NID_auth_psk
    }

    // MARK: - TLS 1.3 sessions

    /// The mark, stored as ticket application data. It is never sent, because a connection with an
    /// external key issues no tickets.
    private static let mark = Array("external pre-shared key".utf8)

    private static func isMarked(_ session: OpaquePointer) -> Bool {
        var bytes: UnsafeMutableRawPointer?
        var count = 0
        guard SSL_SESSION_get0_ticket_appdata(session, &bytes, &count) == 1, let bytes else { return false }
        return UnsafeRawBufferPointer(start: bytes, count: count).elementsEqual(mark)
    }

    /// Returns a new session that contains the key, in the form that OpenSSL requires. The caller owns
    /// it. If this returns `nil`, the reason is in OpenSSL's error queue, for the outer call.
    static func session(with key: TLSPreSharedKey, for ssl: OpaquePointer) -> OpaquePointer? {
        guard let session = SSL_SESSION_new() else { return nil }
        let isSet =
            key.secret.withBytes { secret in
                SSL_SESSION_set1_master_key(session, secret.baseAddress?.assumingMemoryBound(to: UInt8.self), secret.count) == 1
            }
            && SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, key.hash.cipherSuite)) == 1
            && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1
            && SSL_SESSION_set1_ticket_appdata(session, mark, mark.count) == 1
        if isSet { return session }
        SSL_SESSION_free(session)
        return nil
    }
}

/// Verifies the binders, which prove that a TLS 1.3 client has the keys it offers (RFC 8446, 4.2.11.2).
///
/// OpenSSL uses the first key that the callback returns and fails the handshake if the binder for that key is
/// wrong. A client with one valid key could therefore list any other identity first, and find out whether
/// that identity exists. To prevent this, a server checks the binders before it chooses a key.
struct KeyBinders {
    /// The ClientHello or, after a HelloRetryRequest, the first ClientHello, the HelloRetryRequest, and the
    /// second ClientHello.
    private var messages: [[UInt8]] = []

    mutating func sawHello(_ message: UnsafeRawBufferPointer) {
        messages.append(Array(message))
    }

    /// Records a ServerHello sent by this side, if it is a HelloRetryRequest.
    mutating func sawAnswer(_ message: UnsafeRawBufferPointer) {
        // The random follows the header (4 bytes) and the version (2 bytes).
        if messages.count == 1, message.dropFirst(6).starts(with: Self.retryRandom) { messages.append(Array(message)) }
    }

    mutating func forget() {
        messages = []
    }

    /// SHA-256 of "HelloRetryRequest" (RFC 8446, 4.1.3).
    private static let retryRandom: [UInt8] = Digest(.sha256).hash(Array("HelloRetryRequest".utf8))

    /// Whether `key` produces the binder of the identity at `index` in the list.
    func prove(_ key: TLSPreSharedKey, at index: Int, of list: PreSharedKeyList) -> Bool {
        guard let hello = messages.last, list.binders.indices.contains(index), list.byteCountOfBinders < hello.count else {
            return false
        }
        let digest = Digest(key.hash)
        var transcript: [UInt8] = []
        if messages.count == 3 {
            // The hash of the first ClientHello replaces the message (RFC 8446, 4.4.1).
            let first = digest.hash(messages[0])
            transcript = [254, 0, 0, UInt8(first.count)] + first + messages[1]
        }
        transcript += hello.dropLast(list.byteCountOfBinders)
        let early = digest.code([UInt8](repeating: 0, count: digest.count), key.secret.copy)
        let binderKey = digest.expand(early, "ext binder", digest.hash([]))
        let expected = digest.code(digest.expand(binderKey, "finished", []), digest.hash(transcript))
        let binder = list.binders[index]
        return binder.count == expected.count && CRYPTO_memcmp(binder, expected, expected.count) == 0
    }
}

private struct Digest {
    private let method: OpaquePointer?
    let count: Int

    init(_ algorithm: TLSPreSharedKey.HashAlgorithm) {
        switch algorithm {
        case .sha256: (method, count) = (EVP_sha256(), 32)
        case .sha384: (method, count) = (EVP_sha384(), 48)
        }
    }

    func hash(_ bytes: [UInt8]) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: count)
        _ = EVP_Digest(bytes, bytes.count, &result, nil, method, nil)
        return result
    }

    /// HMAC, which is also HKDF-Extract (RFC 5869, 2.2).
    func code(_ key: [UInt8], _ bytes: [UInt8]) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: count)
        _ = HMAC(method, key, Int32(key.count), bytes, bytes.count, &result, nil)
        return result
    }

    /// HKDF-Expand-Label with the hash length as output length (RFC 8446, 7.1), so a single step of
    /// HKDF-Expand is enough.
    func expand(_ secret: [UInt8], _ label: String, _ context: [UInt8]) -> [UInt8] {
        let name = Array("tls13 \(label)".utf8)
        let info = [0, UInt8(count), UInt8(name.count)] + name + [UInt8(context.count)] + context
        return code(secret, info + [1])
    }
}

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

internal import COpenSSL

/// The negotiation of the pre-shared keys in one handshake, and its outcome.
final class PreSharedKeyNegotiation {
    let keys: TLSPreSharedKeys
    /// On a client the key that it has offered; on a server the key of an identity of the client.
    private(set) var key: TLSPreSharedKey?
    /// `key` is a random one, so that this handshake fails like one with a wrong key.
    private(set) var isDecoy = false
    /// The key is in a handshake of TLS 1.2.
    private(set) var isOfTLS12 = false
    /// The client's first identity.
    private(set) var firstIdentity: [UInt8]?
    /// The messages of a server's handshake, for the client's proofs.
    var binders = KeyBinders()

    init(_ keys: TLSPreSharedKeys) {
        self.keys = keys
    }

    /// The key that a client offers.
    func offer(inTLS12: Bool) -> TLSPreSharedKey? {
        (key, isOfTLS12) = (keys.only, inTLS12)
        return key
    }

    /// Looks for the first of a client's keys that it has proved. Where it has proved none, the first one
    /// that is known fails in OpenSSL.
    ///
    /// - Parameter isLast: Nothing but a key can help: the first identity gets a decoy.
    func look(for list: PreSharedKeyList, isLast: Bool) {
        begin(with: list.identities.first, inTLS12: false)
        for (index, identity) in list.identities.enumerated() {
            guard let known = keys.key(of: identity) else { continue }
            if binders.prove(known, at: index, of: list) { return key = known }
            if key == nil { key = known }
        }
        if isLast { makeDecoy() }
    }

    /// Looks for the key of the one identity in TLS 1.2. Nothing but a key can help: an unknown identity
    /// gets a decoy.
    func lookInTLS12(for identity: [UInt8]) {
        begin(with: identity, inTLS12: true)
        key = keys.key(of: identity)
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

    /// The key that both sides used in the complete handshake of `ssl`; nil without one.
    func proof(on ssl: OpaquePointer) -> KeyProof? {
        binders.forget()
        guard Self.isUsed(on: ssl), let key, !isDecoy else { return nil }
        return KeyProof(kind: .preSharedKey, value: key.identity)
    }

    /// Whether the handshake of `ssl`, which is complete, was made with an external key. A session of ours in
    /// TLS 1.3 has the mark, which distinguishes it from one that came with a ticket.
    static func isUsed(on ssl: OpaquePointer) -> Bool {
        guard SSL_get0_peer_certificate(ssl) == nil else { return false }
        if SSL_version(ssl) == TLS1_3_VERSION {
            return SSL_session_reused(ssl) == 1 && SSL_get_session(ssl).map { isMarked($0) } == true
        }
        return SSL_CIPHER_get_auth_nid(SSL_get_current_cipher(ssl)) == NID_auth_psk
    }

    // MARK: - Sessions of TLS 1.3

    /// Application data of tickets, which a session never sends: external keys get no tickets.
    private static let mark = Array("external pre-shared key".utf8)

    private static func isMarked(_ session: OpaquePointer) -> Bool {
        var bytes: UnsafeMutableRawPointer?
        var count = 0
        guard SSL_SESSION_get0_ticket_appdata(session, &bytes, &count) == 1, let bytes else { return false }
        return UnsafeRawBufferPointer(start: bytes, count: count).elementsEqual(mark)
    }

    /// A new session with the key, as OpenSSL wants it; the caller owns it. Nil leaves the reason in
    /// OpenSSL's queue, for the outer call.
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

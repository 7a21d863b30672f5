// Rules of session tickets (RFC 8446, 4.6.1):
//  1. A ticket is the session itself, encrypted with keys that belong to one context and never leave the
//     process. So the server stores nothing for a client, and does not resume what another context has
//     issued. The context's random session id context ensures this a second time.
//  2. A key encrypts for an hour and decrypts for one more, counted from its first ticket (`TicketKeyRing`).
//  3. A session ends an hour after its full handshake. OpenSSL gives it a new date with each ticket, so the
//     ticket contains its end, by our own clock.
//  4. A ticket that cannot be used (unknown key, changed bytes, too old) is ignored: a full handshake and new
//     tickets follow.
//  5. A resumed handshake gets one new ticket, because a client should use each ticket once (RFC 8446, C.4).
//  6. TLS 1.2 has no tickets: it resumes a session without a key exchange, so a ticket's key would decrypt
//     everything sent in that session.
//  7. A context that asks for certificates issues no tickets (`TLSSettings.validate`): resuming would skip
//     the decision about them.
//  8. A context shows the same identities whatever name the client asks for: what the client supports chooses
//     among them. So a session resumed with another SNI gains nothing. If certificates are ever chosen by
//     name, a session must not cross names (CVE-2025-23419).

internal import COpenSSL
internal import SocketBuffers

/// Issues and opens the tickets of one context.
final class SessionTickets: Sendable {
    private let ring = Locked(TicketKeyRing())
    private let clock: @Sendable () -> Int

    /// - Parameter clock: Seconds, which go on while the machine sleeps; nil for the seconds from now.
    init(clock: (@Sendable () -> Int)?) {
        let origin = ContinuousClock.now
        self.clock = clock ?? { Int(origin.duration(to: .now).components.seconds) }
    }

    /// Makes `context` send `count` tickets after a full handshake. The context must not outlive this object.
    func issue(_ count: Int, on context: OpaquePointer) throws(TLSError) {
        SSL_CTX_clear_options(context, COpenSSL_noTicketOption())
        try OpenSSLCall.requireSuccess("SSL_CTX_set_num_tickets") { SSL_CTX_set_num_tickets(context, count) }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_ex_data") {
            SSL_CTX_set_ex_data(context, Self.place, Unmanaged.passUnretained(self).toOpaque())
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_tlsext_ticket_key_evp_cb") {
            SSL_CTX_set_tlsext_ticket_key_evp_cb(context) { ssl, name, vector, cipher, authenticator, isSealing in
                guard let tickets = SessionTickets.of(ssl), let name, let vector else { return -1 }
                return isSealing == 1
                    ? tickets.seal(name, vector, cipher, authenticator) : tickets.open(name, vector, cipher, authenticator)
            }
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_session_ticket_cb") {
            SSL_CTX_set_session_ticket_cb(
                context,
                { ssl, _ in SessionTickets.of(ssl)?.setEnd(of: SSL_get_session(ssl)) == true ? 1 : 0 },
                { ssl, session, _, _, status, _ in
                    // In TLS 1.2 this value keeps the extension out of the ServerHello too.
                    guard let ssl, SSL_version(ssl) == TLS1_3_VERSION else { return SSL_TICKET_RETURN_IGNORE }
                    let isOpened = status == SSL_TICKET_SUCCESS || status == SSL_TICKET_SUCCESS_RENEW
                    let isUsable = isOpened && SessionTickets.of(ssl)?.isAlive(session) == true
                    return isUsable ? SSL_TICKET_RETURN_USE_RENEW : SSL_TICKET_RETURN_IGNORE_RENEW
                }, nil)
        }
    }

    /// The index of `SSL_CTX_set_app_data`.
    private static let place: Int32 = 0

    private static func of(_ ssl: OpaquePointer?) -> SessionTickets? {
        guard let ssl, let tickets = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), place) else { return nil }
        return Unmanaged<SessionTickets>.fromOpaque(tickets).takeUnretainedValue()
    }

    // MARK: - Keys

    // The functions below return 1 for yes, 0 for a ticket that is not ours, and -1 for a failure, whose
    // reason stays in the error queue.

    private func seal(
        _ name: UnsafeMutablePointer<UInt8>, _ vector: UnsafeMutablePointer<UInt8>, _ cipher: OpaquePointer?,
        _ authenticator: OpaquePointer?
    ) -> Int32 {
        let now = clock()
        guard let key = ring.withLock({ $0.keyForSealing(at: now) }) else { return -1 }
        name.update(from: key.name, count: key.name.count)
        return withExtendedLifetime(key) {
            guard RAND_bytes(vector, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) == 1,
                EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), nil, key.forCipher.baseAddress, vector) == 1
            else { return -1 }
            return authenticate(with: key, authenticator)
        }
    }

    private func open(
        _ name: UnsafeMutablePointer<UInt8>, _ vector: UnsafeMutablePointer<UInt8>, _ cipher: OpaquePointer?,
        _ authenticator: OpaquePointer?
    ) -> Int32 {
        let now = clock()
        let name = UnsafeRawBufferPointer(start: name, count: TicketKey.nameLength)
        guard let key = ring.withLock({ $0.key(named: name, at: now) }) else { return 0 }
        return withExtendedLifetime(key) {
            guard EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), nil, key.forCipher.baseAddress, vector) == 1 else { return -1 }
            return authenticate(with: key, authenticator)
        }
    }

    /// The caller keeps `key` alive.
    private func authenticate(with key: TicketKey, _ authenticator: OpaquePointer?) -> Int32 {
        let bytes = key.forAuthentication
        return COpenSSL_setHMACSHA256Key(authenticator, bytes.baseAddress, bytes.count) == 1 ? 1 : -1
    }

    // MARK: - The end of a session

    /// Puts the end into a session that is about to become a ticket, unless it was resumed and has one
    /// already.
    private func setEnd(of session: OpaquePointer?) -> Bool {
        guard let session else { return false }
        let now = clock()
        var end = Self.end(of: session) ?? now + TicketKeyRing.period
        // The time that is left becomes the ticket's lifetime, which the client receives.
        guard SSL_SESSION_set_timeout(session, max(0, end - now)) == 1 else { return false }
        return SSL_SESSION_set1_ticket_appdata(session, &end, MemoryLayout<Int>.size) == 1
    }

    private func isAlive(_ session: OpaquePointer?) -> Bool {
        guard let session, let end = Self.end(of: session) else { return false }
        return clock() < end
    }

    private static func end(of session: OpaquePointer) -> Int? {
        var bytes: UnsafeMutableRawPointer?
        var count = 0
        guard SSL_SESSION_get0_ticket_appdata(session, &bytes, &count) == 1, let bytes, count == MemoryLayout<Int>.size else {
            return nil
        }
        return bytes.loadUnaligned(as: Int.self)
    }
}

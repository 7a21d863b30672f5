// Rules for session tickets (RFC 8446, 4.6.1):
//  1. A ticket is the encrypted session, so the server stores no data per client. The keys belong to one
//     context and never leave the process (`TicketKeyRing`), or are supplied by a source that several
//     processes share (`TLSTicketKeySource`). A server does not resume a session issued by a context with
//     other settings, because their session id contexts differ: the id is random or, with shared keys, a
//     digest of the settings.
//  2. A key of the context encrypts for an hour and decrypts for another hour, starting with its first
//     ticket.
//  3. A session expires an hour after its full handshake. OpenSSL renews the session's date with each TLS
//     1.3 ticket, so the ticket contains the expiry time: by our own clock, or by the system clock with
//     shared keys. The expiry time is never later than the expiry of the certificates that prove the
//     client's identity, or of the lists that prove they are not revoked.
//  4. A ticket that cannot be used (unknown key, modified bytes, too old) is ignored, and the handshake
//     is a full one with new tickets.
//  5. In TLS 1.3, a resumed handshake issues one new ticket, because a client should use each ticket only
//     once (RFC 8446, C.4). In TLS 1.2, where tickets are sent in plaintext, a client keeps its ticket
//     until the ticket's key no longer encrypts. In a renewed ticket OpenSSL would state a lifetime of 0,
//     "unspecified" (RFC 5077, 3.3), which wolfSSL treats as expired.
//  6. In TLS 1.3, tickets are sent with the first data that the server writes in the turn that completes
//     the handshake, including its callbacks (`TLSEngine.write`). Otherwise they are sent at the end of that
//     turn, because the client may be waiting for them. A peer that is not accepted receives no tickets.
//  7. A context that requests certificates issues tickets only if its settings allow it
//     (`TLSSettings.sessionTickets`). The verdict is stored with the session, and the trust gate receives it
//     again when the session is resumed.
//  8. A context uses the same identities whatever name the client requests, and selects the identity that the
//     client supports. If identities are chosen by name, each name has a separate context, so a session is
//     never resumed under another name (CVE-2025-23419).
//  9. A session established for one name of a list (`TLSServerNames`) is not resumed under another name,
//     even if both have the same settings (RFC 6066, 3).
// 10. A key source is user code. It is called before any lock is taken (`TLSEngine.addTickets`), or
//     during the handshake, when no keying material can be exported.
// 11. A TLS 1.2 client without ticket support receives a session identifier, and the context stores the
//     session (`IdentifiedSessions`). The same rules apply, and the session is stored once the peer is
//     accepted. OpenSSL reports when a connection that uses the session has failed, and the context then
//     removes the session.
// 12. A connection with an external pre-shared key issues no ticket, because its client already has the
//     key.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

/// Issues and decrypts the tickets of one context.
final class SessionTickets: Sendable {
    private let earlyDataLimit: Int
    private let ring = Locked(TicketKeyRing())
    private let source: (any TLSTicketKeySource)?
    let clock: @Sendable () -> Int
    private let cipher: TicketCipher
    /// The sessions of clients without ticket support.
    let identified = IdentifiedSessions()
    private let facts: @Sendable (OpaquePointer) -> TicketFacts
    /// `nil` if early data is not accepted.
    let earlyData: Locked<EarlyDataRecord>?

    /// - Parameters:
    ///   - source: The source of keys shared with other processes; `nil` to use keys that only this object
    ///     has.
    ///   - earlyDataLimit: How many bytes of early data a ticket allows.
    ///   - record: The record of tickets that were used for early data. `nil` for a new one.
    ///   - requiresFIPS: Whether tickets are encrypted by OpenSSL's FIPS provider.
    ///   - facts: Returns the facts about the connection of an `SSL`.
    ///   - clock: Returns seconds, which must advance while the machine sleeps. If `nil`, the clock
    ///     counts from now or, with shared keys, returns the system time.
    init(
        keysFrom source: (any TLSTicketKeySource)?, earlyDataLimit: Int, record: EarlyDataRecord?, requiresFIPS: Bool = false,
        facts: @escaping @Sendable (OpaquePointer) -> TicketFacts, clock: (@Sendable () -> Int)?
    ) throws(TLSError) {
        cipher = try TicketCipher(requiresFIPS: requiresFIPS)
        self.source = source
        self.facts = facts
        self.earlyDataLimit = earlyDataLimit
        earlyData = earlyDataLimit > 0 ? Locked(record ?? EarlyDataRecord()) : nil
        let origin = ContinuousClock.now
        if let clock {
            self.clock = clock
        } else if source != nil {
            self.clock = { time(nil) }
        } else {
            self.clock = { Int(origin.duration(to: .now).components.seconds) }
        }
    }

    /// Lets `context` issue tickets: automatically in TLS 1.2, and when the engine requests them in TLS
    /// 1.3. The context must not outlive this object.
    func issue(on context: OpaquePointer) throws(TLSError) {
        SSL_CTX_clear_options(context, COpenSSL_noTicketOption())
        try OpenSSLCall.requireSuccess("SSL_CTX_set_ex_data") {
            SSL_CTX_set_ex_data(context, Self.place, Unmanaged.passUnretained(self).toOpaque())
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_tlsext_ticket_key_evp_cb") {
            SSL_CTX_set_tlsext_ticket_key_evp_cb(context) { ssl, name, vector, cipher, authenticator, isSealing in
                guard let ssl, let tickets = SessionTickets.of(ssl), let name, let vector else { return -1 }
                // In TLS 1.2 the client then receives an empty ticket (RFC 5077, 3.3).
                if isSealing == 1, TLSProof.usesSharedKey(ssl) { return 0 }
                return isSealing == 1
                    ? tickets.seal(name, vector, cipher, authenticator, tickets.keyForSealing(tickets.facts(ssl)))
                    : tickets.open(name, vector, cipher, authenticator)
            }
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_session_ticket_cb") {
            SSL_CTX_set_session_ticket_cb(
                context,
                { ssl, _ in SessionTickets.of(ssl)?.setEnd(of: ssl) == true ? 1 : 0 },
                { ssl, session, _, _, status, _ in
                    let isOpened = status == SSL_TICKET_SUCCESS || status == SSL_TICKET_SUCCESS_RENEW
                    let isUsable = isOpened && SessionTickets.of(ssl)?.isAlive(session, for: ssl) == true
                    guard isUsable else { return SSL_TICKET_RETURN_IGNORE_RENEW }
                    let isRenewed =
                        status == SSL_TICKET_SUCCESS_RENEW || ssl.map { TLSProtocolVersion(of: $0) >= .tls13 } ?? false
                    return isRenewed ? SSL_TICKET_RETURN_USE_RENEW : SSL_TICKET_RETURN_USE
                }, nil)
        }
        COpenSSL_CTX_keepSessionIdentifiers(context)
        SSL_CTX_sess_set_get_cb(context) { ssl, identifier, count, isShared in
            // The caller owns the returned reference.
            isShared?.pointee = 0
            return SessionTickets.of(ssl)?.find(Array(UnsafeBufferPointer(start: identifier, count: Int(count))), for: ssl)
        }
        SSL_CTX_sess_set_remove_cb(context) { context, session in
            if let context, let session { SessionTickets.of(context: context)?.identified.remove(session) }
        }
        if earlyDataLimit > 0 { try allowEarlyData(earlyDataLimit, on: context) }
    }

    // MARK: - Clients without ticket support

    /// Stores the session of an accepted peer, for clients without ticket support.
    func establish(_ ssl: OpaquePointer) {
        guard TLSProtocolVersion(of: ssl) < .tls13, SSL_session_reused(ssl) == 0, !TLSProof.usesSharedKey(ssl),
            let session = SSL_get_session(ssl), setEnd(of: ssl),
            let end = Stamp(of: session)?.end
        else { return }
        identified.store(session, until: end, at: clock())
    }

    private func find(_ identifier: [UInt8], for ssl: OpaquePointer?) -> OpaquePointer? {
        guard let session = identified.session(identifier, at: clock()) else { return nil }
        guard isAlive(session, for: ssl) else {
            SSL_SESSION_free(session)
            return nil
        }
        return session
    }

    /// The index that `SSL_CTX_set_app_data` uses.
    private static let place: Int32 = 0

    static func of(_ ssl: OpaquePointer?) -> SessionTickets? {
        ssl.flatMap { of(context: SSL_get_SSL_CTX($0)) }
    }

    private static func of(context: OpaquePointer) -> SessionTickets? {
        SSL_CTX_get_ex_data(context, place).map { Unmanaged<SessionTickets>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: - Keys

    /// The key for the next tickets from the program's source; `nil` if the settings have no source.
    var givenKey: TLSTicketKey? { source?.keys.current }

    /// A ticket that is replaced by an alert (`EngineCallbacks.installRefusal`) uses a key from the ring,
    /// because it is never sent.
    private func keyForSealing(_ facts: TicketFacts) -> TLSTicketKey? {
        if let key = facts.key ?? (facts.mayAskSource ? givenKey : nil) { return key }
        let now = clock()
        return ring.withLock { $0.keyForSealing(at: now) }
    }

    // The functions below return 1 for success, 2 for a valid ticket that must be renewed with another
    // key, 0 for a ticket with an unknown key, and -1 for a failure, in which case the reason is in the error
    // queue.

    private func seal(
        _ name: UnsafeMutablePointer<UInt8>, _ vector: UnsafeMutablePointer<UInt8>, _ cipher: OpaquePointer?,
        _ authenticator: OpaquePointer?, _ key: TLSTicketKey?
    ) -> Int32 {
        guard let key else { return -1 }
        name.update(from: key.name, count: key.name.count)
        return withExtendedLifetime(key) {
            guard RAND_bytes(vector, EVP_CIPHER_get_iv_length(self.cipher.method)) == 1,
                EVP_EncryptInit_ex(cipher, self.cipher.method, nil, key.forCipher.baseAddress, vector) == 1
            else { return -1 }
            return authenticate(with: key, authenticator)
        }
    }

    private func open(
        _ name: UnsafeMutablePointer<UInt8>, _ vector: UnsafeMutablePointer<UInt8>, _ cipher: OpaquePointer?,
        _ authenticator: OpaquePointer?
    ) -> Int32 {
        let now = clock()
        let name = UnsafeRawBufferPointer(start: name, count: TLSTicketKey.nameLength)
        let found = if let source { source.keys.key(named: name) } else { ring.withLock { $0.key(named: name, at: now) } }
        guard let (key, encrypts) = found else { return 0 }
        return withExtendedLifetime(key) {
            guard EVP_DecryptInit_ex(cipher, self.cipher.method, nil, key.forCipher.baseAddress, vector) == 1 else { return -1 }
            let answer = authenticate(with: key, authenticator)
            return answer == 1 && !encrypts ? 2 : answer
        }
    }

    /// The caller keeps `key` alive.
    private func authenticate(with key: TLSTicketKey, _ authenticator: OpaquePointer?) -> Int32 {
        let bytes = key.forAuthentication
        return COpenSSL_setHMACSHA256Key(authenticator, bytes.baseAddress, bytes.count) == 1 ? 1 : -1
    }

    // MARK: - Session expiry

    /// Stores the expiry time in a session that is about to become a ticket. A resumed session keeps its
    /// original expiry time.
    private func setEnd(of ssl: OpaquePointer?) -> Bool {
        guard let ssl, let session = SSL_get_session(ssl) else { return false }
        let now = clock()
        let end = Stamp(of: session)?.end ?? now + min(TicketKeyRing.period, secondsOfEvidence(for: ssl))
        // The remaining time becomes the ticket's lifetime, which the client receives. OpenSSL cannot
        // create a ticket with a lifetime of 0, and would fail the connection.
        guard SSL_SESSION_set_timeout(session, max(1, end - now) + age(of: session)) == 1 else { return false }
        return Stamp(end: end, issued: earlyData == nil ? -1 : now, name: facts(ssl).name).put(into: session)
    }

    /// The seconds since the date from which OpenSSL counts the timeout. In TLS 1.2, a new ticket does
    /// not change that date.
    private func age(of session: OpaquePointer) -> Int {
        min(max(0, Int(time(nil)) - Int(COpenSSL_sessionTime(session))), TicketKeyRing.period)
    }

    private func isAlive(_ session: OpaquePointer?, for ssl: OpaquePointer?) -> Bool {
        guard let ssl, let session, let stamp = Stamp(of: session), stamp.name == facts(ssl).name else { return false }
        let (now, end) = (clock(), stamp.end)
        // A clock that was set back must not extend the life of a session.
        return now < end && end - now <= TicketKeyRing.period
    }

    /// How long the evidence for trusting the client remains valid, in seconds.
    private func secondsOfEvidence(for ssl: OpaquePointer) -> Int {
        guard let end = facts(ssl).evidenceEnd else { return .max }
        return max(0, end - time(nil))
    }
}

/// The facts that an engine supplies about the tickets of its connection.
struct TicketFacts {
    /// The key for the tickets being created; `nil` if the context chooses the key.
    var key: TLSTicketKey?
    /// Whether a key source may be called, because no lock is held.
    var mayAskSource = true
    /// The digest of the client's server name (`TLSClientHello.nameDigest`) if a server's settings were
    /// selected for that name, or else 0.
    var name = 0
    /// When the evidence for trusting the peer expires: the certificates of its chain, and the lists that
    /// prove they are not revoked. In seconds since 1970; `nil` if no evidence was used.
    var evidenceEnd: Int?
}

/// The facts that our tickets contain in addition to the session.
struct Stamp {
    /// When the session expires, in seconds of `SessionTickets.clock`.
    let end: Int
    /// When the ticket was created, by the same clock; -1 if early data is not accepted.
    let issued: Int
    /// The digest of the client's server name (`TLSClientHello.nameDigest`) if the settings were selected for
    /// that name, or else 0.
    let name: Int

    init(end: Int, issued: Int, name: Int) {
        (self.end, self.issued, self.name) = (end, issued, name)
    }

    init?(of session: OpaquePointer) {
        var bytes: UnsafeMutableRawPointer?
        var count = 0
        let size = MemoryLayout<Int>.size
        guard SSL_SESSION_get0_ticket_appdata(session, &bytes, &count) == 1, let bytes, count == 3 * size else { return nil }
        end = bytes.loadUnaligned(as: Int.self)
        issued = bytes.loadUnaligned(fromByteOffset: size, as: Int.self)
        name = bytes.loadUnaligned(fromByteOffset: 2 * size, as: Int.self)
    }

    func put(into session: OpaquePointer) -> Bool {
        [end, issued, name].withUnsafeBytes { SSL_SESSION_set1_ticket_appdata(session, $0.baseAddress, $0.count) == 1 }
    }
}

/// AES-256-CBC for tickets, from the provider that the policy requires.
final class TicketCipher: Sendable {
    private let address: UInt

    /// - Throws: `invalidSettings` if OpenSSL does not provide the cipher.
    init(requiresFIPS: Bool) throws(TLSError) {
        let method = try OpenSSLCall.require(
            "EVP_CIPHER_fetch", or: .invalidSettings, "session tickets require AES-256-CBC, but the policy disables it"
        ) {
            EVP_CIPHER_fetch(nil, "AES-256-CBC", requiresFIPS ? "fips=yes" : nil)
        }
        address = UInt(bitPattern: method)
    }

    deinit { EVP_CIPHER_free(method) }

    var method: OpaquePointer? { OpaquePointer(bitPattern: address) }
}

extension TLSSettingValues {
    func validateTickets() throws(TLSError) {
        guard case .issued(let count, _) = tickets else { return }
        try Self.validate(count, in: 1...8, "the number of session tickets")
        if !showsCertificates {
            throw Self.invalid("clients is .preSharedKeys, which cannot be combined with sessionTickets")
        }
        if clientCertificates == .optional || clientCertificates == .required, trustEvaluation == .manual {
            throw Self.invalid(
                "sessionTickets store the verdict on a client certificate, but trustEvaluation is .manual: set it to .delegate"
            )
        }
    }
}

extension TLSSettings where Side == TLSRole.Server {
    /// The session tickets that the server issues, which let clients resume their sessions. Defaults to
    /// `.none`.
    ///
    /// A client that resumes a session does not present its certificate again and does not prove that it
    /// still has the key. The verdict is stored in the ticket. The ticket is valid for at most one hour, and
    /// no longer than the certificate. A certificate that is revoked during this time is still accepted. If
    /// `trustEvaluation` is `.delegate`, the trust callback is called again, with the client's own
    /// certificate but without its chain. If it is `.manual` and certificates are requested during the
    /// handshake, enabling tickets is an error, as it is with raw public keys and with `clients` set to
    /// `.preSharedKeys`.
    public var sessionTickets: TLSSessionTickets {
        get { values.tickets }
        set { values.tickets = newValue }
    }
}

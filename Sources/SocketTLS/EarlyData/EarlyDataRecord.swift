// Rules against replays (RFC 8446, 8):
//  1. OpenSSL takes early data only while the age of the ticket, as the ClientHello states it, is right: for
//     11 seconds of the system's clock (8.3; `TICKET_AGE_ALLOWANCE`). It also sees to the rest of 4.2.10: the
//     first ticket, the same application protocol, no HelloRetryRequest.
//  2. The system's clock may be set. So a ticket tells its age by our own clock too, and the two must agree
//     to 2 seconds: a ClientHello and its replay are less than 15 seconds apart.
//  3. Within 20 seconds a ticket brings early data once (8.1). It is known by the secret that it resumes,
//     which is another one for each ticket.
//  4. A full record takes no early data. Nothing is forgotten early to make room.
//  5. The record belongs to the keys of the tickets. No one else has them, and after a restart there are
//     others: so shared keys cannot have early data.
//
// OpenSSL's own protection wants stateful tickets: a whole session in its cache for each ticket, for an hour,
// whether it is used or not. This one takes 25 bytes for each use, for 20 to 40 seconds.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

/// Which tickets have brought early data lately.
package struct EarlyDataRecord {
    /// The first 128 bits of a digest.
    package struct Ticket: Hashable {
        let high: UInt64
        let low: UInt64

        package init(high: UInt64, low: UInt64) {
            (self.high, self.low) = (high, low)
        }
    }

    /// The least number of seconds for which a ticket is remembered.
    package static let period = 20
    /// The most tickets within one period: three quarters of a power of two, which a `Set` holds in 1.2 MB.
    package static let standardLimit = 49_152

    private let limit: Int
    // Those of the present period, and those of the one before.
    private var current: Set<Ticket> = []
    private var previous: Set<Ticket> = []
    private var start = 0

    package init(limit: Int = standardLimit) {
        self.limit = limit
    }

    /// Whether a ticket may bring early data now: once, and not when the record is full.
    package mutating func admit(_ ticket: Ticket, at now: Int) -> Bool {
        if now - start >= Self.period {
            previous = now - start >= 2 * Self.period ? [] : current
            current = []
            start = now
        }
        guard current.count < limit, !previous.contains(ticket) else { return false }
        return current.insert(ticket).inserted
    }
}

extension SessionTickets {
    /// The most seconds by which the ages of a ticket may differ.
    private static let tolerance = 2

    /// Has tickets allow `limit` bytes of early data, which count once for each ticket.
    func allowEarlyData(_ limit: Int, on context: OpaquePointer) throws(TLSError) {
        // Without this option OpenSSL would take stateful tickets only.
        SSL_CTX_set_options(context, COpenSSL_noAntiReplayOption())
        SSL_CTX_set_allow_early_data_cb(
            context,
            { ssl, _ in
                guard let ssl, let tickets = SessionTickets.of(ssl) else { return 0 }
                return tickets.admitEarlyData(of: ssl) ? 1 : 0
            }, nil)
        try OpenSSLCall.requireSuccess("SSL_CTX_set_max_early_data") {
            SSL_CTX_set_max_early_data(context, UInt32(clamping: limit))
        }
        // What is rejected is skipped as ciphertext, with what records add to it.
        try OpenSSLCall.requireSuccess("SSL_CTX_set_recv_max_early_data") {
            SSL_CTX_set_recv_max_early_data(context, UInt32(clamping: max(2 * limit, Int(SSL3_RT_MAX_PLAIN_LENGTH))))
        }
    }

    /// OpenSSL asks when nothing else speaks against early data.
    private func admitEarlyData(of ssl: OpaquePointer) -> Bool {
        guard let earlyData, let session = SSL_get_session(ssl), let issued = Stamp(of: session)?.issued, issued >= 0 else {
            return false
        }
        let now = clock()
        let age = Int(time(nil)) - Int(COpenSSL_sessionTime(session))
        guard abs(age - (now - issued)) <= Self.tolerance, let ticket = Self.ticket(of: session) else { return false }
        return earlyData.withLock { $0.admit(ticket, at: now) }
    }

    private static func ticket(of session: OpaquePointer) -> EarlyDataRecord.Ticket? {
        var secret = [UInt8](repeating: 0, count: Int(SSL_MAX_MASTER_KEY_LENGTH))
        defer { OPENSSL_cleanse(&secret, secret.count) }
        let count = SSL_SESSION_get_master_key(session, &secret, secret.count)
        guard count > 0 else { return nil }
        var digest = [UInt8](repeating: 0, count: Int(SHA256_DIGEST_LENGTH))
        guard SHA256(secret, count, &digest) != nil else { return nil }
        return digest.withUnsafeBytes {
            EarlyDataRecord.Ticket(
                high: $0.loadUnaligned(as: UInt64.self), low: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
    }
}

/// The facts that a ticket of ours carries beside its session.
struct Stamp {
    /// When the session ends, in seconds of `SessionTickets.clock`.
    let end: Int
    /// When the ticket was made, by the same clock; -1 without early data.
    let issued: Int
    /// The digest of the name by which the settings were chosen (`TLSClientHello.nameDigest`); 0 for none.
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

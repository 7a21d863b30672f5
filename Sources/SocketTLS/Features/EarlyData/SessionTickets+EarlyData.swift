internal import COpenSSL
internal import Glibc
internal import SocketBuffers

extension SessionTickets {
    /// The maximum difference between a ticket's age by the system clock and its age by our own clock, in
    /// seconds.
    private static let tolerance = 2

    /// Allows each ticket to be used for up to `limit` bytes of early data, once.
    func allowEarlyData(_ limit: Int, on context: OpaquePointer) throws(TLSError) {
        // Without this option, OpenSSL would use only stateful tickets.
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
        // Rejected data is skipped as ciphertext, so this limit includes the overhead of the records.
        try OpenSSLCall.requireSuccess("SSL_CTX_set_recv_max_early_data") {
            SSL_CTX_set_recv_max_early_data(context, UInt32(clamping: max(2 * limit, Int(SSL3_RT_MAX_PLAIN_LENGTH))))
        }
    }

    /// Called by OpenSSL once its own checks have passed.
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

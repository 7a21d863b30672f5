internal import COpenSSL
public import FoundationEssentials

/// A session that a server has offered to a client, which can resume it in another connection: with fewer
/// messages, without a certificate and without a signature (RFC 8446, section 2.2; RFC 5246, section 7.3).
///
/// It carries the server's certificates and the verdict on them, which hold for the resumed connection too.
/// It can be used only for the same server name, with the same trust settings, identity, versions and
/// application protocols, and until `end`.
public final class TLSResumableSession: Sendable {
    /// The protocol version of the connection that it comes from, and of those that resume it.
    public let protocolVersion: TLSVersion
    /// The server's certificates, its own first.
    public let peerCertificates: [Certificate]
    /// No connection resumes it after this time: the server's limit, the end of one of the certificates or of
    /// their root, the next update of the OCSP response or of a list of revoked certificates that counted, or
    /// seven days after the certificates were verified (RFC 8446, section 4.6.1), whichever comes first.
    public let end: Date

    let handle: SessionHandle
    let verdict: PeerTrust.Verdict
    let otherFaults: [PeerTrust.Verdict]
    let scope: ResumptionScope
    /// When the certificates were verified. A session that is resumed keeps the date of the first one.
    let verified: Date
    /// When the first proof ends that counted for the verdict: a certificate of the chain with its root, a
    /// list or a response. Nil without any.
    let evidenceEnd: Date?

    /// The longest that a verdict on certificates holds: the longest lifetime of a ticket in TLS 1.3.
    static let longestLife: TimeInterval = 604_800

    init(
        _ handle: SessionHandle, _ peerCertificates: [Certificate], _ verdict: PeerTrust.Verdict,
        otherFaults: [PeerTrust.Verdict] = [], verified: Date, evidenceEnd: Date?, _ scope: ResumptionScope
    ) {
        self.otherFaults = otherFaults
        self.evidenceEnd = evidenceEnd
        self.handle = handle
        self.peerCertificates = peerCertificates
        self.verdict = verdict
        self.verified = verified
        self.scope = scope
        protocolVersion = handle.protocolVersion
        let limits = peerCertificates.map(\.notAfter) + [handle.end, verified + Self.longestLife, evidenceEnd ?? .distantFuture]
        end = limits.min() ?? verified
    }

    /// A session of TLS 1.3 should be resumed once, so that an observer cannot tell that two connections are
    /// by the same client (RFC 8446, appendix C.4).
    var isForOneUse: Bool { protocolVersion >= .tls13 }

    /// Whether `end` has not come yet, and OpenSSL takes the session.
    public var isUsable: Bool { isUsable(at: Date()) }

    func isUsable(at time: Date) -> Bool {
        // A clock that was set back must not make a verdict last longer.
        time < end && time >= verified - 60 && handle.isResumable
    }
}

/// Owns one `SSL_SESSION`.
final class SessionHandle: @unchecked Sendable {
    // Unchecked: it is not changed after it is made, and each connection gets a copy.
    let session: OpaquePointer

    /// Takes over a reference.
    init(owning session: OpaquePointer) {
        self.session = session
    }

    deinit { SSL_SESSION_free(session) }

    var protocolVersion: TLSVersion {
        TLSVersion(wireNumber: SSL_SESSION_get_protocol_version(session))
    }

    var isResumable: Bool { SSL_SESSION_is_resumable(session) == 1 }

    /// When the server forgets it. A server may name no limit for its tickets in TLS 1.2 (RFC 5077, 3.3):
    /// then OpenSSL's limit counts. In TLS 1.3 none means that the ticket is over at once (RFC 8446, 4.6.1).
    fileprivate var end: Date {
        let hint = Int(truncatingIfNeeded: SSL_SESSION_get_ticket_lifetime_hint(session))
        let limit = hint > 0 || protocolVersion >= .tls13 ? hint : Int(SSL_SESSION_get_timeout(session))
        return Date(timeIntervalSince1970: TimeInterval(COpenSSL_sessionTime(session)) + TimeInterval(limit))
    }

    /// Has `ssl` offer it. A copy, since OpenSSL marks a session whose connection fails.
    func offer(on ssl: OpaquePointer) throws(TLSError) {
        let copy = try OpenSSLCall.require("SSL_SESSION_dup", or: .internalError, "OpenSSL has no memory for a session.") {
            SSL_SESSION_dup(session)
        }
        defer { SSL_SESSION_free(copy) }
        try OpenSSLCall.requireSuccess("SSL_set_session") { SSL_set_session(ssl, copy) }
    }

    /// Its ASN.1 form, with its keys.
    var derBytes: [UInt8] {
        let count = Int(i2d_SSL_SESSION(session, nil))
        guard count > 0 else { return [] }
        return [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            var cursor = buffer.baseAddress
            filled = max(0, Int(i2d_SSL_SESSION(session, &cursor)))
        }
    }

    convenience init(derBytes: [UInt8]) throws(TLSError) {
        let session = try OpenSSLCall.require(
            "d2i_SSL_SESSION", or: .invalidSession, "The bytes are not a session."
        ) {
            derBytes.withUnsafeBufferPointer { bytes in
                var cursor = bytes.baseAddress
                return d2i_SSL_SESSION(nil, &cursor, bytes.count)
            }
        }
        self.init(owning: session)
    }
}

internal import COpenSSL
public import FoundationEssentials

/// A session that a server has offered to a client. The client can resume it in another connection, with
/// fewer messages, no certificate and no signature (RFC 8446, section 2.2; RFC 5246, section 7.3).
///
/// The session contains the server's certificates and the verdict on them, which also apply to the
/// resumed connection. It can be used only for the same server name, with the same trust settings,
/// identity, versions and application protocols, and until `end`.
public final class TLSResumableSession: Sendable {
    /// The protocol version of the original connection, and of all connections that resume the session.
    public let protocolVersion: TLSProtocolVersion
    /// The server's certificates, starting with its own.
    public let peerCertificates: [TLSCertificate]
    /// The time after which no connection resumes the session. This is the earliest of the server's
    /// limit, the expiry of the certificates and of their root, the next update of the OCSP response or
    /// revocation lists that were used, and seven days after the certificates were verified (RFC 8446,
    /// section 4.6.1).
    public let end: Date

    let handle: SessionHandle
    let verdict: PeerTrust.Verdict
    let otherFaults: [PeerTrust.Verdict]
    let scope: ResumptionScope
    /// When the certificates were verified. A resumed session keeps the date of the original
    /// verification.
    let verified: Date
    /// When the first piece of evidence for the verdict expires: a certificate of the chain, including
    /// its root, a revocation list or an OCSP response. `nil` if no such evidence was used.
    let evidenceEnd: Date?

    /// The longest time for which a verdict on certificates is valid, in seconds: the maximum lifetime of
    /// a TLS 1.3 ticket.
    static let longestLife: TimeInterval = 604_800

    init(
        _ handle: SessionHandle, _ peerCertificates: [TLSCertificate], _ verdict: PeerTrust.Verdict,
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

    /// A TLS 1.3 session should be resumed only once, so that an observer cannot link two connections to
    /// the same client (RFC 8446, appendix C.4).
    var isForOneUse: Bool { protocolVersion >= .tls13 }

    /// Whether the session has not expired and OpenSSL can resume it.
    public var isUsable: Bool { isUsable(at: Date()) }

    func isUsable(at time: Date) -> Bool {
        // A clock that was set back must not extend the life of a verdict.
        time < end && time >= verified - 60 && handle.isResumable
    }
}

final class SessionHandle: @unchecked Sendable {
    // Unchecked: the session is not changed after creation, and each connection uses a copy.
    let session: OpaquePointer

    /// Takes ownership of a reference.
    init(owning session: OpaquePointer) {
        self.session = session
    }

    deinit { SSL_SESSION_free(session) }

    var protocolVersion: TLSProtocolVersion {
        TLSProtocolVersion(wireNumber: SSL_SESSION_get_protocol_version(session))
    }

    var isResumable: Bool { SSL_SESSION_is_resumable(session) == 1 }

    /// When the server discards the session. In TLS 1.2 a server may state no lifetime for its tickets
    /// (RFC 5077, 3.3), so OpenSSL's timeout applies. In TLS 1.3 a lifetime of 0 means that the ticket
    /// expires immediately (RFC 8446, 4.6.1).
    fileprivate var end: Date {
        let hint = Int(truncatingIfNeeded: SSL_SESSION_get_ticket_lifetime_hint(session))
        let limit = hint > 0 || protocolVersion >= .tls13 ? hint : Int(SSL_SESSION_get_timeout(session))
        return Date(timeIntervalSince1970: TimeInterval(COpenSSL_sessionTime(session)) + TimeInterval(limit))
    }

    /// Makes `ssl` offer a copy of the session. A copy is needed because OpenSSL marks a session as not
    /// resumable if its connection fails.
    func offer(on ssl: OpaquePointer) throws(TLSError) {
        let copy = try OpenSSLCall.require("SSL_SESSION_dup", or: .internalError, "OpenSSL is out of memory") {
            SSL_SESSION_dup(session)
        }
        defer { SSL_SESSION_free(copy) }
        try OpenSSLCall.requireSuccess("SSL_set_session") { SSL_set_session(ssl, copy) }
    }

    /// The ASN.1 form of the session, including its keys.
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
            "d2i_SSL_SESSION", or: .invalidSession, "the data is not a TLS session"
        ) {
            derBytes.withUnsafeBufferPointer { bytes in
                var cursor = bytes.baseAddress
                return d2i_SSL_SESSION(nil, &cursor, bytes.count)
            }
        }
        self.init(owning: session)
    }
}

// The bytes consist of these fields, each preceded by its length: format, scope, verdict, number of other
// faults, these faults, date of the verdict, expiry of its first evidence (-1 if no evidence expires), number
// of certificates, certificates, OpenSSL's session.
extension TLSResumableSession {
    private static let format: [UInt8] = Array("AsyncSockets session 2".utf8)
    /// Seconds since 1970, in the year 5138. Larger values cannot be converted from dates to integers.
    private static let latestDate = 100_000_000_000

    /// The session as bytes, for a store outside the process.
    ///
    /// **The bytes are secret**: an attacker who obtains them can impersonate this client to the server, and
    /// decrypt the traffic of a resumed TLS 1.2 connection. Encrypt them before writing them to disk.
    public var bytes: [UInt8] {
        var fields = DigestFields()
        fields.append(Self.format)
        fields.append(scope.digest)
        fields.append(verdict)
        fields.append(otherFaults.count)
        for fault in otherFaults { fields.append(fault) }
        fields.append(Int(verified.timeIntervalSince1970))
        // The expiry date of a certificate that does not expire is the last second of the year 9999 (RFC
        // 5280, 4.1.2.5).
        fields.append(evidenceEnd.map { max(0, min(Self.latestDate, Int($0.timeIntervalSince1970))) } ?? -1)
        fields.append(peerCertificates.map(\.derBytes))
        fields.append(handle.derBytes)
        return fields.bytes
    }

    /// Creates a session from `bytes`, in this process or another one.
    ///
    /// Use only bytes that were protected against modification, because they contain the verdict on the
    /// server.
    ///
    /// - Throws: `invalidSession` if the bytes are not a session, and `invalidCertificate` if a
    ///   certificate in them is invalid.
    public convenience init(bytes: [UInt8]) throws(TLSError) {
        let parts = try bytes.withUnsafeBytes { bytes in
            var reader = SessionReader(fields: FieldReader(bytes))
            return Result { () throws(TLSError) in try reader.parts() }
        }.get()
        self.init(
            parts.handle, parts.certificates, parts.verdict, otherFaults: parts.faults, verified: parts.verified,
            evidenceEnd: parts.evidenceEnd, parts.scope)
    }

    private struct Parts {
        let scope: ResumptionScope
        let verdict: PeerTrust.Verdict
        let faults: [PeerTrust.Verdict]
        let verified: Date
        let evidenceEnd: Date?
        let certificates: [TLSCertificate]
        let handle: SessionHandle
    }

    private struct SessionReader {
        var fields: FieldReader

        mutating func parts() throws(TLSError) -> Parts {
            guard try field() == TLSResumableSession.format else { throw Self.invalid }
            let scope = ResumptionScope(digest: try field())
            let verdict = try verdict()
            let faults = try list { reader throws(TLSError) in try reader.verdict() }
            let (seconds, evidenceSeconds) = (try number(), try number())
            let dates = 0...TLSResumableSession.latestDate
            guard dates.contains(seconds), evidenceSeconds == -1 || dates.contains(evidenceSeconds) else { throw Self.invalid }
            let certificates = try list { reader throws(TLSError) in try TLSCertificate(der: try reader.field()) }
            let handle = try SessionHandle(derBytes: try field())
            guard fields.isAtEnd, scope.digest.count == 32 else { throw Self.invalid }
            return Parts(
                scope: scope, verdict: verdict, faults: faults, verified: Self.date(seconds),
                evidenceEnd: evidenceSeconds < 0 ? nil : Self.date(evidenceSeconds), certificates: certificates, handle: handle)
        }

        private static func date(_ seconds: Int) -> Date { Date(timeIntervalSince1970: TimeInterval(seconds)) }

        /// Reads a count and then that many elements. Each element takes at least eight bytes.
        private mutating func list<Element>(
            _ element: (inout SessionReader) throws(TLSError) -> Element
        ) throws(TLSError) -> [Element] {
            let count = try number()
            guard count >= 0, count <= fields.rest.count / 8 else { throw Self.invalid }
            var elements: [Element] = []
            for _ in 0..<count { elements.append(try element(&self)) }
            return elements
        }

        private mutating func verdict() throws(TLSError) -> PeerTrust.Verdict {
            switch try number() {
            case 1: return .trusted
            case 0:
                let reason = String(decoding: try field(), as: UTF8.self)
                return .untrusted(reason: reason, code: Int32(truncatingIfNeeded: try number()), depth: try number())
            default: throw Self.invalid
            }
        }

        private mutating func number() throws(TLSError) -> Int {
            guard let number = fields.number(of: 8) else { throw Self.invalid }
            return number
        }

        private mutating func field() throws(TLSError) -> [UInt8] {
            guard let field = fields.field(lengthOf: 8) else { throw Self.invalid }
            return Array(field)
        }

        private static var invalid: TLSError {
            TLSError(.invalidSession, "the data is not a session saved by this library", operation: "TLSResumableSession")
        }
    }
}

extension DigestFields {
    fileprivate mutating func append(_ verdict: PeerTrust.Verdict) {
        switch verdict {
        case .trusted: append(1)
        case .untrusted(let reason, let code, let depth):
            append(0)
            append(Array(reason.utf8))
            append(code)
            append(depth)
        }
    }
}

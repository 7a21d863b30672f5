internal import FoundationEssentials

// The bytes, each field behind its length: format, scope, verdict, number of other faults, these faults, date
// of the verdict, end of its first proof (-1: none), number of certificates, certificates,
// OpenSSL's session.
extension TLSResumableSession {
    private static let format: [UInt8] = Array("AsyncSockets session 2".utf8)
    /// Seconds since 1970, in the year 5138: with larger numbers dates cannot be turned into integers.
    private static let latestDate: Int64 = 100_000_000_000

    /// The session as bytes, for a store outside of the process.
    ///
    /// **They are a secret**: anyone who has them can pose as this client to the server, and decrypt what a
    /// resumed connection of TLS 1.2 exchanges. Encrypt what you write to disk.
    public var bytes: [UInt8] {
        var fields = DigestFields()
        fields.append(Self.format)
        fields.append(scope.digest)
        fields.append(verdict)
        fields.append(otherFaults.count)
        for fault in otherFaults { fields.append(fault) }
        fields.append(Int64(verified.timeIntervalSince1970))
        // A certificate without an end has the last second of the year 9999 (RFC 5280, 4.1.2.5).
        fields.append(evidenceEnd.map { max(0, min(Self.latestDate, Int64($0.timeIntervalSince1970))) } ?? -1)
        fields.append(peerCertificates.map(\.derBytes))
        fields.append(handle.derBytes)
        return fields.bytes
    }

    /// The session that `bytes` has returned, in this process or another one.
    ///
    /// Use only bytes that no one else could have changed: they carry the verdict on the server.
    ///
    /// - Throws: `invalidSession` for anything else, and `invalidCertificate`.
    public convenience init(bytes: [UInt8]) throws(TLSError) {
        var reader = FieldReader(rest: bytes[...])
        guard try reader.field() == Self.format[...] else { throw FieldReader.invalid }
        let scope = ResumptionScope(digest: Array(try reader.field()))
        let verdict = try reader.verdict()
        let faultCount = try reader.number()
        // Each takes eight bytes at least, as does each certificate.
        guard faultCount >= 0, faultCount <= bytes.count / 8 else { throw FieldReader.invalid }
        var faults: [PeerTrust.Verdict] = []
        for _ in 0..<faultCount { faults.append(try reader.verdict()) }
        let (seconds, evidenceSeconds) = (try reader.number(), try reader.number())
        guard (0...Self.latestDate).contains(seconds), (-1...Self.latestDate).contains(evidenceSeconds) else {
            throw FieldReader.invalid
        }
        let verified = Date(timeIntervalSince1970: TimeInterval(seconds))
        let evidenceEnd = evidenceSeconds < 0 ? nil : Date(timeIntervalSince1970: TimeInterval(evidenceSeconds))
        let count = try reader.number()
        guard count >= 0, count <= bytes.count / 8 else { throw FieldReader.invalid }
        var certificates: [Certificate] = []
        for _ in 0..<count { certificates.append(try Certificate(der: Array(try reader.field()))) }
        let handle = try SessionHandle(derBytes: try reader.field())
        guard reader.rest.isEmpty, scope.digest.count == 32 else { throw FieldReader.invalid }
        self.init(
            handle, certificates, verdict, otherFaults: faults, verified: verified, evidenceEnd: evidenceEnd, scope)
    }

    private struct FieldReader {
        var rest: ArraySlice<UInt8>

        static var invalid: TLSError {
            TLSError(.invalidSession, "The bytes are not a session of this library.", operation: "TLSResumableSession")
        }

        mutating func number() throws(TLSError) -> Int64 {
            guard rest.count >= 8 else { throw Self.invalid }
            defer { rest = rest.dropFirst(8) }
            return rest.prefix(8).reduce(0) { $0 << 8 | Int64($1) }
        }

        mutating func verdict() throws(TLSError) -> PeerTrust.Verdict {
            switch try number() {
            case 1: return .trusted
            case 0:
                let reason = String(decoding: try field(), as: UTF8.self)
                return .untrusted(
                    reason: reason, code: Int32(truncatingIfNeeded: try number()), depth: Int(truncatingIfNeeded: try number()))
            default: throw Self.invalid
            }
        }

        mutating func field() throws(TLSError) -> ArraySlice<UInt8> {
            let count = try number()
            guard count >= 0, count <= rest.count else { throw Self.invalid }
            defer { rest = rest.dropFirst(Int(count)) }
            return rest.prefix(Int(count))
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

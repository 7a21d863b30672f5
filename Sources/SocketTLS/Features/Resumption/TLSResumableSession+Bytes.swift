internal import FoundationEssentials

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

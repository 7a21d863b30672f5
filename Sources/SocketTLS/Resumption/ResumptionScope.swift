internal import COpenSSL

/// Everything that two connections must have in common if one is to resume the other's session: a digest of
/// the name, the trust settings, the identity and what may be negotiated.
///
/// A verdict on a certificate holds within its scope only. A session that crossed scopes would carry the
/// verdict of one set of rules into another (CVE-2025-23419, CVE-2021-22890).
struct ResumptionScope: Hashable, Sendable {
    let digest: [UInt8]

    init(digest: [UInt8]) {
        self.digest = digest
    }

    init(_ fields: DigestFields) {
        digest = fields.digest
    }
}

/// Fields in a form in which no two lists of fields are alike, for a digest.
struct DigestFields {
    private(set) var bytes: [UInt8] = []

    mutating func append(_ field: [UInt8]) {
        append(field.count)
        bytes += field
    }

    mutating func append(_ fields: [[UInt8]]) {
        append(fields.count)
        for field in fields { append(field) }
    }

    mutating func append(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: Int64(truncatingIfNeeded: number).bigEndian) { bytes += $0 }
    }

    /// SHA-256.
    var digest: [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        SHA256(bytes, bytes.count, &digest)
        return digest
    }
}

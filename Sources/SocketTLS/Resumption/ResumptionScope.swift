internal import COpenSSL

/// Everything that two connections must have in common if one is to resume the other's session: a digest of
/// the name, the trust settings, the identity and what may be negotiated.
///
/// A verdict on a certificate holds within its scope only. A session that crossed scopes would carry the
/// verdict of one set of rules into another (CVE-2025-23419, CVE-2021-22890).
struct ResumptionScope: Hashable, Sendable {
    let digest: [UInt8]

    /// The part that a context knows.
    init(_ key: ContextKey) {
        var fields = DigestFields()
        fields.append(key.identity?.certificateChain.map(\.derBytes) ?? [])
        key.roots.append(to: &fields)
        key.policy.append(to: &fields)
        fields.append(key.minimumVersion.wireValue)
        fields.append(key.maximumVersion?.wireValue ?? 0)
        fields.append(key.applicationProtocols.map { Array($0.utf8) })
        fields.append(key.maximumCertificateChainBytes)
        fields.append(key.maximumCertificateChainLength)
        digest = fields.digest
    }

    /// The scope of a server whose tickets other processes open: it depends on nothing of this process.
    init(ofServer key: ContextKey) throws(TLSError) {
        var fields = DigestFields()
        fields.append(key.identity?.certificateChain.map(\.derBytes) ?? [])
        fields.append(try key.roots.listedCertificates().map(\.derBytes))
        fields.append(key.clientCertificates == .required ? 2 : key.clientCertificates == .optional ? 1 : 0)
        fields.append(key.applicationProtocols.map { Array($0.utf8) })
        digest = fields.digest
    }

    /// With what belongs to a single connection.
    init(_ context: ResumptionScope, _ settings: TLSSettings, serverName: String) {
        var fields = DigestFields()
        fields.append(context.digest)
        fields.append(Array(serverName.lowercased().utf8))
        fields.append(settings.verifiesHostName ? 1 : 0)
        switch settings.trustEvaluation {
        case .builtIn: fields.append(0)
        case .delegate: fields.append(1)
        case .manual: fields.append(2)
        }
        digest = fields.digest
    }

    init(digest: [UInt8]) {
        self.digest = digest
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

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
}

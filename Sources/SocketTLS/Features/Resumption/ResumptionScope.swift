/// A digest of everything that two connections must have in common for one to resume the other's session:
/// the name, the trust settings, the identity and the negotiable parameters.
///
/// A verdict on a certificate is valid only within its scope. A session used in another scope would apply
/// the verdict of one set of rules to another (CVE-2025-23419, CVE-2021-22890).
struct ResumptionScope: Hashable, Sendable {
    let digest: [UInt8]

    init(digest: [UInt8]) {
        self.digest = digest
    }
}

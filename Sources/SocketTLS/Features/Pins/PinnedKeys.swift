internal import COpenSSL

struct PinnedKeys: Hashable, Sendable {
    private let digests: Set<[UInt8]>?
    private let onlyReports: Bool

    /// OpenSSL has no specific error code for a chain without a pinned key.
    static let mismatch = X509_V_ERR_APPLICATION_VERIFICATION

    init(_ rules: TLSCertificateRules) {
        digests = rules.pins
        onlyReports = rules.onlyReportsPins
    }

    private init(digests: Set<[UInt8]>?, onlyReports: Bool) {
        self.digests = digests
        self.onlyReports = onlyReports
    }

    func validate() throws(TLSError) {
        guard let digests else { return }
        if digests.isEmpty {
            throw TLSSettingValues.invalid("pins is empty, so no key would match: pass at least one digest, or nil for no pins")
        }
        if let pin = digests.first(where: { $0.count != 32 }) {
            throw TLSSettingValues.invalid("a pin must be 32 bytes long (SHA-256), but is \(pin.count)")
        }
    }

    /// Whether the chain contains a pinned key; `nil` if no keys are pinned.
    func match(_ chain: VerifiedChain) -> Bool? {
        digests.map { !$0.isDisjoint(with: chain.certificates.map(TLSCertificate.publicKeySHA256)) }
    }

    /// Returns `nil` if the chain contains a pinned key, or if a missing pin is only reported.
    func fault(in chain: VerifiedChain) -> PeerTrust.Verdict? {
        guard !onlyReports, match(chain) == false else { return nil }
        let subject =
            chain.certificates.first.map { "the certificate chain of \"\(chain.name($0))\"" } ?? "the peer's certificate chain"
        return .untrusted(reason: "\(subject) contains no pinned key", code: Self.mismatch, depth: 0)
    }
}

extension PinnedKeys: Digestible {
    func append(to fields: inout DigestFields) {
        _ = PinnedKeys(digests: fields.add(digests), onlyReports: fields.add(onlyReports))
    }
}

extension TLSError.Code {
    /// The peer's chain is trusted, but it contains no key from `TLSCertificateRules.pins`.
    public static let pinMismatch = TLSError.Code("pinMismatch", fault: .certificate)
}

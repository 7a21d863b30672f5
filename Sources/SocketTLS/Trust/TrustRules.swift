internal import COpenSSL
internal import FoundationEssentials

/// The settings that change what a good chain is. The defaults change nothing.
struct TrustRules: Hashable, Sendable {
    private let acceptsPartialChains: Bool
    /// Seconds since 1970.
    private let verificationTime: Int?
    private let isStrict: Bool
    private let pins: Set<[UInt8]>
    private let onlyReportsPins: Bool
    private let acceptsAnyKeyUsage: Bool
    let revocation: Revocation?
    let ocspStapling: TLSOCSPStapling

    static let none = TrustRules(
        acceptsPartialChains: false, verificationTime: nil, isStrict: false, pins: [], onlyReportsPins: false,
        acceptsAnyKeyUsage: false, revocation: nil, ocspStapling: .none)

    /// Sets the rules that OpenSSL checks itself.
    func apply(to context: OpaquePointer) throws(TLSError) {
        let parameters = SSL_CTX_get0_param(context)
        var flags = 0
        if acceptsPartialChains { flags |= Int(X509_V_FLAG_PARTIAL_CHAIN) }
        if isStrict { flags |= Int(X509_V_FLAG_X509_STRICT) }
        if let revocation { flags |= revocation.flags }
        if let verificationTime { X509_VERIFY_PARAM_set_time(parameters, verificationTime) }
        guard flags != 0 else { return }
        try OpenSSLCall.requireSuccess("X509_VERIFY_PARAM_set_flags") {
            X509_VERIFY_PARAM_set_flags(parameters, UInt(flags))
        }
    }

    /// Nil without pins.
    func matchesPins(_ chain: VerifiedChain) -> Bool? {
        pins.isEmpty ? nil : !pins.isDisjoint(with: chain.publicKeys)
    }

    /// The check of the response that a server staples; nil if none was asked for.
    func stapledStatus(for chain: VerifiedChain) -> StapledStatus? {
        ocspStapling == .none
            ? nil : StapledStatus(chain, isRequired: ocspStapling == .required, at: verificationTime)
    }

    /// The faults of a chain that OpenSSL does not look for.
    func faults(in chain: VerifiedChain) -> [PeerTrust.Verdict] {
        [chain.constraintFault, isStrict ? chain.authorityFault : nil, acceptsAnyKeyUsage ? nil : chain.keyUsageFault]
            .compactMap { $0 }
    }

    /// Nil when a pinned key is in the chain, and when nothing is to be refused for want of one.
    func pinFault(in chain: VerifiedChain) -> PeerTrust.Verdict? {
        !onlyReportsPins && matchesPins(chain) == false ? chain.pinFault : nil
    }
}

extension TrustRules {
    init(_ settings: TLSSettingValues) {
        let rules = settings.rules
        self.init(
            acceptsPartialChains: rules.acceptsPartialChains,
            // `validate` has checked that it fits.
            verificationTime: rules.verificationTime.map { Int($0.timeIntervalSince1970.rounded(.down)) },
            isStrict: rules.isStrict, pins: rules.pins, onlyReportsPins: rules.onlyReportsPins,
            acceptsAnyKeyUsage: settings.policy == .compatible,
            revocation: rules.revocationLists.isEmpty ? nil : Revocation(rules.revocationLists, rules.revocationScope),
            ocspStapling: settings.ocspStapling)
    }
}

extension TrustRules: Digestible {
    func append(to fields: inout DigestFields) {
        _ = TrustRules(
            acceptsPartialChains: fields.add(acceptsPartialChains), verificationTime: fields.add(verificationTime),
            isStrict: fields.add(isStrict), pins: fields.add(pins), onlyReportsPins: fields.add(onlyReportsPins),
            acceptsAnyKeyUsage: fields.add(acceptsAnyKeyUsage), revocation: fields.add(revocation),
            ocspStapling: fields.add(ocspStapling))
    }
}

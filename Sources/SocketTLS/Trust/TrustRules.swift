internal import COpenSSL
internal import FoundationEssentials

/// The settings that change how chains are verified. The default values change nothing.
struct TrustRules: Hashable, Sendable {
    private let acceptsPartialChains: Bool
    /// In seconds since 1970.
    let verificationTime: Int?
    private let isStrict: Bool
    let pins: PinnedKeys
    private let acceptsAnyKeyUsage: Bool
    let revocation: Revocation?

    static let none = TrustRules(
        acceptsPartialChains: false, verificationTime: nil, isStrict: false, pins: .none,
        acceptsAnyKeyUsage: false, revocation: nil)

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

    /// Returns the faults in a chain that OpenSSL does not check for.
    func faults(in chain: VerifiedChain) -> [PeerTrust.Verdict] {
        [chain.constraintFault, isStrict ? chain.authorityFault : nil, acceptsAnyKeyUsage ? nil : chain.keyUsageFault]
            .compactMap { $0 }
    }
}

extension TrustRules {
    init(_ settings: TLSSettingValues) {
        let rules = settings.rules
        self.init(
            acceptsPartialChains: rules.acceptsPartialChains,
            // `validate` has checked that the value fits.
            verificationTime: rules.verificationTime.map { Int($0.timeIntervalSince1970.rounded(.down)) },
            isStrict: rules.isStrict, pins: PinnedKeys(rules),
            acceptsAnyKeyUsage: settings.policy == .compatible,
            revocation: rules.revocationLists.isEmpty ? nil : Revocation(rules.revocationLists, rules.revocationScope))
    }
}

extension TrustRules {
    static func validate(_ rules: TLSCertificateRules) throws(TLSError) {
        if let time = rules.verificationTime, !(abs(time.timeIntervalSince1970) < 1e11) {
            throw TLSSettingValues.invalid("verificationTime must be within 3,000 years of 1970")
        }
        try PinnedKeys(rules).validate()
    }
}

extension TrustRules: Digestible {
    func append(to fields: inout DigestFields) {
        _ = TrustRules(
            acceptsPartialChains: fields.add(acceptsPartialChains), verificationTime: fields.add(verificationTime),
            isStrict: fields.add(isStrict), pins: fields.add(pins),
            acceptsAnyKeyUsage: fields.add(acceptsAnyKeyUsage), revocation: fields.add(revocation))
    }
}

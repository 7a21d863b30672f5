internal import COpenSSL
internal import FoundationEssentials

/// The settings that change what a good chain is. The defaults change nothing.
struct TrustRules: Hashable, Sendable {
    private var acceptsPartialChains = false
    /// Seconds since 1970.
    private var verificationTime: Int?
    private var isStrict = false
    private var pins: Set<[UInt8]> = []
    private var onlyReportsPins = false
    private var acceptsAnyKeyUsage = false
    private(set) var revocation: Revocation?
    private(set) var ocspStapling = TLSSettings.OCSPStapling.none

    init() {}

    init(_ settings: TLSSettings) {
        acceptsPartialChains = settings.acceptsPartialChains
        // `validate` has checked that it fits.
        verificationTime = settings.verificationTime.map { Int($0.timeIntervalSince1970.rounded(.down)) }
        isStrict = settings.isStrict
        pins = settings.pins
        onlyReportsPins = settings.onlyReportsPins
        ocspStapling = settings.ocspStapling
        acceptsAnyKeyUsage = settings.policy == .compatible
        revocation = settings.revocationLists.isEmpty ? nil : Revocation(settings.revocationLists, settings.revocationScope)
    }

    /// What OpenSSL does itself.
    func apply(to context: OpaquePointer) throws(TLSError) {
        if ocspStapling != .none { try EngineCallbacks.requestStatus(on: context) }
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

    /// With the stamps of the files, which belong to this machine.
    func append(to fields: inout DigestFields) {
        appendSettings(to: &fields)
        fields.append(revocation == nil ? 0 : 1)
        revocation?.append(to: &fields)
    }

    /// With what is in the files.
    func appendContents(to fields: inout DigestFields) throws(TLSError) {
        appendSettings(to: &fields)
        fields.append(revocation == nil ? 0 : 1)
        try revocation?.appendContents(to: &fields)
    }

    private func appendSettings(to fields: inout DigestFields) {
        fields.append(acceptsPartialChains ? 1 : 0)
        fields.append(verificationTime ?? .min)
        fields.append(isStrict ? 1 : 0)
        fields.append(pins.sorted { $0.lexicographicallyPrecedes($1) })
        fields.append(onlyReportsPins ? 1 : 0)
        fields.append(acceptsAnyKeyUsage ? 1 : 0)
        switch ocspStapling {
        case .none: fields.append(0)
        case .requested: fields.append(1)
        case .required: fields.append(2)
        }
    }
}

internal import COpenSSL
internal import FoundationEssentials

/// The settings that change how chains are verified. The default values change nothing.
struct TrustRules: Hashable, Sendable {
    private let acceptsPartialChains: Bool
    /// In seconds since 1970.
    let verificationTime: Int?
    private let isStrict: Bool
    let pins: PinnedKeys?
    private let acceptsAnyKeyUsage: Bool
    let revocation: Revocation?

    static let none = TrustRules(
        acceptsPartialChains: false, verificationTime: nil, isStrict: false, pins: nil,
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
    ///
    /// - Parameter isNamed: Whether a TLSA record authenticates the peer's own certificate, which may then be
    ///   the certificate of an authority.
    func faults(in chain: VerifiedChain, isNamed: Bool = false) -> [PeerTrust.Verdict] {
        [
            chain.constraintFault, isStrict && !isNamed ? chain.authorityFault : nil,
            acceptsAnyKeyUsage ? nil : chain.keyUsageFault,
        ].compactMap { $0 }
    }
}

extension TrustRules {
    init(_ settings: TLSSettingValues) {
        let rules = settings.rules
        self.init(
            acceptsPartialChains: rules.acceptsPartialChains,
            // `validate` has checked that the value fits.
            verificationTime: rules.verificationTime.map { Int($0.timeIntervalSince1970.rounded(.down)) },
            isStrict: rules.isStrict, pins: Self.pins(of: rules),
            acceptsAnyKeyUsage: settings.policy == .compatible,
            revocation: rules.revocationLists.isEmpty ? nil : Revocation(rules.revocationLists, rules.revocationScope))
    }
}

extension TrustRules {
    static func validate(_ rules: TLSCertificateRules) throws(TLSError) {
        if let time = rules.verificationTime, !(abs(time.timeIntervalSince1970) < 1e11) {
            throw TLSSettingValues.invalid("verificationTime must be within 3,000 years of 1970")
        }
        try pins(of: rules)?.validate()
    }

    private static func pins(of rules: TLSCertificateRules) -> PinnedKeys? {
        rules.pins == nil && !rules.onlyReportsPins ? nil : PinnedKeys(rules)
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

/// The estimated cost of verifying a chain's signatures, in microseconds on a processor from 2024. The
/// estimate separates chains that take milliseconds from ordinary chains.
enum VerificationCost {
    /// Two milliseconds. A chain of three P-384 keys stays below this limit.
    private static let limit = 2000

    /// Whether to run the verification on another thread, so that it does not block an event loop.
    static func isHigh(_ chain: OpaquePointer?, _ rules: TrustRules) -> Bool {
        var sum = 0
        for index in 0..<COpenSSL_sk_X509_num(chain) {
            guard let certificate = COpenSSL_sk_X509_value(chain, index) else { continue }
            sum += cost(of: certificate)
        }
        // A certificate revocation list has a signature too.
        return (rules.revocation == nil ? sum : 2 * sum) > limit
    }

    /// Returns the cost of verifying one signature made with a certificate's key.
    private static func cost(of certificate: OpaquePointer) -> Int {
        guard let key = X509_get0_pubkey(certificate) else { return 0 }
        let bits = Int(EVP_PKEY_get_bits(key))
        if EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 { return bits * bits / 280_000 }
        // OpenSSL has optimized code for P-256 and Curve25519.
        return bits <= 256 ? 80 : 600
    }
}

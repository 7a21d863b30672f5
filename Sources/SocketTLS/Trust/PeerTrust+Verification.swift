internal import COpenSSL

extension PeerTrust {
    /// Verifies a chain that was not received in a handshake, for example from a file, by the rules that a
    /// client with these settings applies to its server.
    ///
    /// Like `TLSTrustEvaluation.manual`, this finds all faults: the first is the `verdict`, and `otherFaults`
    /// contains the rest. OCSP responses are not verified. This reads the files of the trusted roots, and
    /// verifies signatures on the calling thread.
    ///
    /// - Parameters:
    ///   - chain: The certificates, starting with the peer's own. The order of the rest does not matter.
    ///   - peer: The side to which the certificate belongs. It determines the purpose that the certificate
    ///     must allow.
    ///   - settings: A server's certificate must match `serverName`, unless `verifiesHostName` is `false`.
    /// - Throws: `.invalidSettings` for settings that a client cannot use, for a server without a
    ///   `serverName` to verify, and if `proof` is not `.certificates` or requires OCSP stapling;
    ///   `.invalidCertificate` if the chain is empty or a file cannot be used.
    public init(
        verifying chain: [TLSCertificate], of peer: TLSRole = .server, settings: TLSClientSettings
    ) throws(TLSError) {
        guard case .certificates = settings.proof else {
            throw TLSSettingValues.invalid("proof must be .certificates to verify a chain without a handshake")
        }
        let name = peer == .server && settings.verifiesHostName ? try TLSSettingValues.name(settings.serverName) : nil
        let context = try TLSContext.withoutName(for: settings.values)
        guard !context.domain.requiresStapledStatus else {
            throw TLSSettingValues.invalid("ocspStapling is .required, but without a handshake there is no OCSP response")
        }
        let verification = try ChainVerification(chain, in: context, of: peer, name)
        let faults = verification.faults()
        self.init(
            peer, chain, faults.first ?? .trusted, Array(faults.dropFirst()), path: faults.isEmpty ? [] : verification.path,
            serverName: name?.text)
    }

    private init(
        _ peer: TLSRole, _ chain: [TLSCertificate], _ verdict: Verdict, _ otherFaults: [Verdict], path: [TLSCertificate],
        serverName: String?
    ) {
        self.init(peer, chain, verdict, otherFaults, path: path, serverName: serverName, publicKey: nil)
    }
}

/// OpenSSL's verification of a chain outside a handshake, which continues after a fault.
///
/// A class, because OpenSSL calls back during verification.
private final class ChainVerification {
    private let verification: DetachedVerification
    private let leaf: TLSCertificate
    private let rules: TrustRules
    private let name: ServerName?
    private let excess: PeerTrust.Verdict?
    private var found: [PeerTrust.Verdict] = []

    init(_ chain: [TLSCertificate], in context: TLSContext, of peer: TLSRole, _ name: ServerName?) throws(TLSError) {
        guard let leaf = chain.first else {
            throw TLSError(.invalidCertificate, "the chain contains no certificates", operation: "verify")
        }
        (self.leaf, self.name, rules) = (leaf, name, context.domain.rules)
        excess = CertificateFault.excess(in: chain) ?? Self.excess(in: chain, context.domain.maximumCertificateChainBytes)
        let store = try context.domain.roots.trustStore(isChanged: rules.revocation != nil)
        try rules.revocation?.add(to: store)
        verification = try DetachedVerification(of: chain, in: store, peer)
        let parameters = X509_STORE_CTX_get0_param(verification.context)
        let inherited = SSL_CTX_get0_param(context.handle.context)
        try OpenSSLCall.requireSuccess("X509_VERIFY_PARAM_set1") { X509_VERIFY_PARAM_set1(parameters, inherited) }
        X509_VERIFY_PARAM_set_auth_level(parameters, SSL_CTX_get_security_level(context.handle.context))
        try name?.require(on: parameters)
    }

    /// Returns a verdict if a handshake would not decode the chain, otherwise `nil`.
    private static func excess(in chain: [TLSCertificate], _ limit: Int) -> PeerTrust.Verdict? {
        let size = chain.reduce(0) { $0 + $1.derBytes.count }
        guard size > limit else { return nil }
        return .untrusted(
            reason: "the certificates have \(size) bytes, but at most \(limit) are accepted",
            code: X509_V_ERR_CERT_CHAIN_TOO_LONG,
            depth: 0)
    }

    /// The chain that OpenSSL built.
    var path: [TLSCertificate] { VerifiedChain(of: verification.context).copies }

    func faults() -> [PeerTrust.Verdict] {
        if let excess { return [excess] }
        let context = verification.context
        X509_STORE_CTX_set_ex_data(context, Self.index, Unmanaged.passUnretained(self).toOpaque())
        X509_STORE_CTX_set_verify_cb(context) { ChainVerification.note($0, $1) }
        let isVerified = OpenSSLCall.attempt { X509_verify_cert(context) == 1 ? true : nil }.value != nil
        if !isVerified, found.isEmpty { found.append(CertificateFault(in: context, leaf: leaf, name?.text).verdict) }
        let verified = VerifiedChain(of: context)
        let trusted = found.allSatisfy(\.leavesPathTrusted) ? verified : verified.leaf
        found += rules.faults(in: verified) + [rules.pins?.fault(in: trusted)].compactMap { $0 }
        return found.filter(\.isRevocation) + found.filter { !$0.isRevocation }
    }

    /// OpenSSL's verify callback, which records a fault and continues.
    private static func note(_ isGood: Int32, _ context: OpaquePointer?) -> Int32 {
        guard isGood != 1, let context, let data = X509_STORE_CTX_get_ex_data(context, index) else { return isGood }
        let verification = Unmanaged<ChainVerification>.fromOpaque(data).takeUnretainedValue()
        let fault = CertificateFault(in: context, leaf: verification.leaf, verification.name?.text).verdict
        guard verification.found.count < Judge.faultLimit else { return 0 }
        if !verification.found.contains(fault) { verification.found.append(fault) }
        return 1
    }

    /// The index that `X509_STORE_CTX_set_app_data` uses.
    private static let index: Int32 = 0
}

/// Owns an `X509_STORE_CTX` that was not created for a handshake.
final class DetachedVerification {
    let context: OpaquePointer
    private let others: OpaquePointer?
    // OpenSSL does not retain them.
    private let (chain, store): ([TLSCertificate], TrustStore)

    /// - Parameters:
    ///   - chain: The certificates, starting with the peer's own. Must not be empty.
    ///   - peer: The side to which the chain belongs.
    init(of chain: [TLSCertificate], in store: TrustStore, _ peer: TLSRole) throws(TLSError) {
        (self.chain, self.store) = (chain, store)
        context = try OpenSSLCall.require("X509_STORE_CTX_new", or: .internalError, "OpenSSL is out of memory") {
            X509_STORE_CTX_new()
        }
        others = OPENSSL_sk_new_null()
        for certificate in chain.dropFirst() {
            guard OPENSSL_sk_push(others, UnsafeRawPointer(certificate.handle.x509)) > 0 else {
                throw TLSError(.internalError, "OpenSSL is out of memory", operation: "OPENSSL_sk_push")
            }
        }
        guard let leaf = chain.first else { return }
        try store.begin(context, leaf.handle.x509, others)
        try OpenSSLCall.requireSuccess("X509_STORE_CTX_set_default") {
            X509_STORE_CTX_set_default(context, peer == .server ? "ssl_server" : "ssl_client")
        }
    }

    deinit {
        X509_STORE_CTX_free(context)
        OPENSSL_sk_free(others)
    }
}

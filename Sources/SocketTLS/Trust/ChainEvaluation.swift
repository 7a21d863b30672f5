internal import COpenSSL

/// Verifies a chain outside a handshake, by the same rules. The drop-in module uses this, because its
/// programs do not set their roots until the delegate evaluates a peer.
package struct ChainEvaluation: Sendable {
    /// The certificates as the peer sent them, starting with its own.
    package var chain: [TLSCertificate]
    package var peer: TLSRole
    /// The name or address that a server's certificate must match, or `nil` to accept any name.
    package var serverName: String?
    /// Certificates that are each trusted as a root, even if their issuer is not trusted.
    package var anchors: [TLSCertificate]
    package var trustsSystemRoots: Bool

    package init(
        _ chain: [TLSCertificate], of peer: TLSRole, serverName: String?, anchors: [TLSCertificate],
        trustsSystemRoots: Bool
    ) {
        self.chain = chain
        self.peer = peer
        self.serverName = serverName
        self.anchors = anchors
        self.trustsSystemRoots = trustsSystemRoots
    }

    /// Verifies the chain. Throws `invalidSettings` for a name that no certificate can match, and
    /// `internalError` if OpenSSL is out of memory.
    package func verdict() throws(TLSError) -> PeerTrust.Verdict {
        guard let leaf = chain.first else {
            return .untrusted(reason: "the chain contains no certificates", code: X509_V_ERR_UNSPECIFIED, depth: 0)
        }
        if let excess = CertificateFault.excess(in: chain) { return excess }
        let name = try peer == .server ? serverName.map { text throws(TLSError) in try ServerName(text) } : nil
        let verification = try DetachedVerification(of: chain, in: trustStore(), peer)
        return try withExtendedLifetime(verification) { () throws(TLSError) in
            try setRules(on: verification.context, name)
            return verify(verification.context, leaf, name)
        }
    }

    /// If only the system's roots are trusted, uses the store that is loaded once per process.
    private func trustStore() throws(TLSError) -> TrustStore {
        guard trustsSystemRoots, anchors.isEmpty else { return try TrustStore(anchors, besideSystemRoots: trustsSystemRoots) }
        return try SystemTrustStore.store(for: SystemTrustStore.currentStamps())
    }

    private func setRules(on context: OpaquePointer, _ name: ServerName?) throws(TLSError) {
        let parameters = X509_STORE_CTX_get0_param(context)
        X509_VERIFY_PARAM_set_depth(parameters, Self.depth)
        X509_VERIFY_PARAM_set_auth_level(parameters, Self.securityLevel)
        if !anchors.isEmpty { X509_VERIFY_PARAM_set_flags(parameters, UInt(X509_V_FLAG_PARTIAL_CHAIN)) }
        try name?.require(on: parameters)
    }

    private func verify(_ context: OpaquePointer, _ leaf: TLSCertificate, _ name: ServerName?) -> PeerTrust.Verdict {
        let isVerified = OpenSSLCall.attempt { X509_verify_cert(context) == 1 ? true : nil }.value != nil
        guard isVerified else { return CertificateFault(in: context, leaf: leaf, name?.text).verdict }
        return TrustRules.none.faults(in: VerifiedChain(of: context)).first ?? .trusted
    }

    // The default values of the settings.
    private static let depth: Int32 = 10
    private static let securityLevel: Int32 = 2
}

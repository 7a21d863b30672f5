// Rules for security domains:
//  1. A verdict on a certificate is valid within one domain only. A session that crossed domains would carry
//     a verdict from one set of rules into another (CVE-2025-23419, CVE-2021-22890).
//  2. Two connections in different domains use different contexts, and neither resumes a session from the
//     other.
//  3. The digest covers every property of the domain, and of the values in it (`DigestFields`).
//  4. Clients and servers have different digests.

/// All context-wide settings on which trust depends. The settings of a single connection are in
/// `ExpectedPeer`.
struct SecurityDomain: Hashable, Sendable {
    let side: Side
    let identities: [TLSIdentity]
    let roots: TrustedRoots
    let rules: TrustRules
    let stapling: TLSOCSPStapling
    let policy: TLSPolicy
    let minimumVersion: TLSProtocolVersion
    let maximumVersion: TLSProtocolVersion?
    let applicationProtocols: [String]
    let clientCertificates: TLSCertificateRequest
    let proof: TLSProof
    let certificateType: TLSCertificateType
    let maximumCertificateChainBytes: Int
    let maximumCertificateChainLength: Int
    let keyLogFile: String?

    enum Side: Int, Sendable {
        case client = 1
        case server = 2
    }

    var isServer: Bool { side == .server }
    /// Whether the peer is rejected without a valid OCSP response.
    var requiresStapledStatus: Bool { stapling == .required }
    var transport: TLSTransport { minimumVersion.isForDatagrams ? .datagrams : .stream }
}

extension SecurityDomain {
    init(_ settings: TLSSettingValues, over transport: TLSTransport = .stream) {
        let verifiesCertificates = settings.verifiesCertificates
        self.init(
            side: settings.role == .server ? .server : .client,
            identities: settings.showsCertificates ? [settings.identity].compactMap(\.self) + settings.additionalIdentities : [],
            roots: verifiesCertificates ? TrustedRoots(settings.trustRoots) : .unused,
            rules: verifiesCertificates ? TrustRules(settings) : .none,
            stapling: verifiesCertificates ? settings.ocspStapling : .none, policy: settings.policy,
            // With DTLS only one version is set, so that no session is shared with TLS.
            minimumVersion: transport == .datagrams ? .dtls12 : settings.oldestVersion,
            maximumVersion: transport == .datagrams ? .dtls12 : settings.maximumVersion,
            applicationProtocols: settings.applicationProtocols,
            clientCertificates: settings.clientCertificates, proof: settings.proof.ofContext,
            certificateType: settings.certificateType,
            maximumCertificateChainBytes: settings.maximumCertificateChainBytes,
            maximumCertificateChainLength: settings.maximumCertificateChainLength, keyLogFile: settings.keyLogFile)
    }
}

extension SecurityDomain: Digestible {
    func append(to fields: inout DigestFields) {
        _ = SecurityDomain(
            side: fields.add(side), identities: fields.add(identities), roots: fields.add(roots), rules: fields.add(rules),
            stapling: fields.add(stapling),
            // OpenSSL resumes a session with any suite that the client offers, even a suite that this side
            // would not choose.
            policy: fields.add(policy), minimumVersion: fields.add(minimumVersion),
            // A server does not resume sessions of a version that it does not accept.
            maximumVersion: isServer ? fields.leaveOut(maximumVersion) : fields.add(maximumVersion),
            applicationProtocols: fields.add(applicationProtocols), clientCertificates: fields.add(clientCertificates),
            proof: fields.add(proof), certificateType: fields.add(certificateType),
            maximumCertificateChainBytes: fields.add(maximumCertificateChainBytes),
            maximumCertificateChainLength: fields.add(maximumCertificateChainLength),
            // With TLS 1.2, a key log would reveal the secrets of earlier connections that used the same
            // session. On a server only its presence matters, because its path is specific to one machine.
            keyLogFile: isServer ? fields.add(keyLogFile.map { _ in "" }) : fields.add(keyLogFile))
    }

    /// The part of a client's resumption scope that the context determines.
    var clientScope: ResumptionScope {
        var fields = DigestFields(.stamps)
        append(to: &fields)
        return ResumptionScope(digest: DigestFields.digest(of: fields.bytes))
    }

    /// Returns the scope for a server that shares its ticket keys with other processes. The scope is the same
    /// in all of these processes.
    func serverScope() throws(TLSError) -> ResumptionScope {
        var fields = DigestFields(.contents)
        append(to: &fields)
        return ResumptionScope(digest: try fields.digest())
    }
}

/// The settings of a single client connection on which trust depends.
struct ExpectedPeer {
    /// Lowercased, because case does not matter in names.
    let serverName: String
    let verifiesHostName: Bool
    let trustEvaluation: TLSTrustEvaluation
    /// With the values that are not part of the context, such as TLSA records.
    let serverProof: TLSProof

    func scope(in context: ResumptionScope) -> ResumptionScope {
        ResumptionScope(
            digest: DigestFields.digest { fields in
                fields.append(context.digest)
                _ = ExpectedPeer(
                    serverName: fields.add(serverName), verifiesHostName: fields.add(verifiesHostName),
                    trustEvaluation: fields.add(trustEvaluation), serverProof: fields.add(serverProof))
            })
    }
}

// MARK: - Choices

extension SecurityDomain.Side: Digestible {
    func append(to fields: inout DigestFields) { fields.append(rawValue) }
}

extension TLSProtocolVersion: Digestible {}

extension TLSCertificateRequest: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .none: fields.append(0)
        case .optional: fields.append(1)
        case .required: fields.append(2)
        case .onRequest: fields.append(3)
        }
    }
}

extension TLSTrustEvaluation: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .builtIn: fields.append(10)
        case .delegate: fields.append(11)
        case .manual: fields.append(12)
        }
    }
}

extension TLSPolicy: Digestible {
    func append(to fields: inout DigestFields) {
        _ = TLSPolicy(
            minimumVersion: fields.add(minimumVersion), cipherSuites: fields.add(cipherSuites), groups: fields.add(groups),
            signatureAlgorithms: fields.add(signatureAlgorithms), securityLevel: fields.add(securityLevel),
            // This is only a preference: the suites that may be chosen are the same.
            prefersServerCipherSuites: fields.leaveOut(prefersServerCipherSuites), requiresFIPS: fields.add(requiresFIPS),
            allowsConstrainedDevices: fields.add(allowsConstrainedDevices))
    }
}

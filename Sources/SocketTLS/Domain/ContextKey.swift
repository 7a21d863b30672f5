/// The settings that determine whether two connections can share a context: all settings that are not
/// specific to a single connection.
struct ContextKey: Hashable, Sendable {
    let domain: SecurityDomain
    let tickets: TLSSessionTickets
    let acceptedEarlyData: TLSAcceptedEarlyData?
    let serverNames: TLSServerNames?
    /// The roots and rules in the settings for server names that verify clients, with the stamps of their
    /// files, which may change.
    let trustOfNames: [NamedTrust]
    let acknowledgesServerName: Bool
    let resumesSessions: Bool
    let verifiesPeer: Bool

    init(_ settings: TLSSettingValues, over transport: TLSTransport = .stream) {
        domain = SecurityDomain(settings, over: transport)
        serverNames = settings.serverNames
        trustOfNames =
            settings.serverNames?.verifying.map { NamedTrust(roots: TrustedRoots($0.trustRoots), rules: TrustRules($0)) } ?? []
        acknowledgesServerName = settings.acknowledgesServerName
        resumesSessions =
            settings.role != .server && settings.resumption != .none && settings.proof.allowsResumption
            && settings.certificateType == .x509
        verifiesPeer = settings.verifiesPeer
        tickets = settings.tickets
        acceptedEarlyData = settings.acceptedEarlyData
    }

    var isServer: Bool { domain.isServer }

    var issuesTickets: Bool { tickets != .none || serverNames?.issueTickets == true }

    struct NamedTrust: Hashable, Sendable {
        let roots: TrustedRoots
        let rules: TrustRules
    }

    var signsSlowly: Bool { domain.identities.contains { $0.privateKey.signsSlowly } }

    /// Hashes only the last bytes of the certificate instead of the whole chain. The context is looked up for
    /// each connection, and hashing whole chains took more than 1% of a handshake. The last bytes belong to
    /// the signature, so they distinguish identities equally well. The keys in the table are derived from
    /// this process's settings, never from a peer's data.
    func hash(into hasher: inout Hasher) {
        hasher.combine(isServer)
        if let certificate = domain.identities.first?.certificateChain.first {
            certificate.derBytes.suffix(16).withUnsafeBytes { hasher.combine(bytes: $0) }
        }
        hasher.combine(domain.identities.count)
        hasher.combine(domain.proof)
        hasher.combine(domain.certificateType)
        hasher.combine(domain.minimumVersion)
        hasher.combine(domain.maximumVersion)
        hasher.combine(domain.applicationProtocols)
        hasher.combine(domain.clientCertificates)
        hasher.combine(tickets)
    }
}

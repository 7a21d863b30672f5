/// What two interchangeable contexts have in common: all settings that do not belong to a single connection.
struct ContextKey: Hashable, Sendable {
    let isServer: Bool
    let identity: TLSIdentity?
    let additionalIdentities: [TLSIdentity]
    let roots: Roots
    let rules: TrustRules
    let policy: TLSPolicy
    let minimumVersion: TLSVersion
    let maximumVersion: TLSVersion?
    let applicationProtocols: [String]
    let clientCertificates: TLSSettings.ClientCertificates
    let sessionTicketCount: Int
    let maximumEarlyDataBytes: Int
    let earlyDataResponder: TLSEarlyDataResponder?
    let serverNames: TLSServerNames?
    /// What the settings of names refer to in files, which may change: of those that verify clients.
    let trustOfNames: [NamedTrust]
    let acknowledgesServerName: Bool
    let ticketKeys: TicketKeySourceReference?
    let resumesClientCertificates: Bool
    let resumesSessions: Bool
    let verifiesPeer: Bool
    let preSharedKeys: TLSPreSharedKeys?
    let rawPublicKeys: TLSRawPublicKeys?
    let maximumCertificateChainBytes: Int
    let maximumCertificateChainLength: Int
    let keyLogFile: String?

    init(_ settings: TLSSettings) {
        isServer = settings.role == .server
        preSharedKeys = settings.preSharedKeys
        rawPublicKeys = settings.rawPublicKeys
        identity = settings.requiresPreSharedKey ? nil : settings.identity
        serverNames = settings.serverNames
        trustOfNames =
            settings.serverNames?.verifying.map { NamedTrust(roots: Roots($0.trustRoots), rules: TrustRules($0)) } ?? []
        additionalIdentities = settings.requiresPreSharedKey ? [] : settings.additionalIdentities
        acknowledgesServerName = settings.acknowledgesServerName
        ticketKeys = settings.ticketKeyReference
        resumesClientCertificates = settings.resumesClientCertificates
        resumesSessions =
            settings.role != .server && settings.resumption != .none && settings.preSharedKeys == nil
            && settings.rawPublicKeys == nil
        verifiesPeer = settings.verifiesPeer
        let verifiesCertificates =
            settings.verifiesPeer && !settings.requiresPreSharedKey && !settings.requiresRawPublicKey
        rules = verifiesCertificates ? TrustRules(settings) : TrustRules()
        roots = verifiesCertificates ? Roots(settings.trustRoots) : .unused
        policy = settings.policy
        minimumVersion = max(settings.minimumVersion, settings.policy.minimumVersion)
        maximumVersion = settings.maximumVersion
        applicationProtocols = settings.applicationProtocols
        clientCertificates = settings.clientCertificates
        sessionTicketCount = settings.sessionTicketCount
        maximumEarlyDataBytes = settings.maximumEarlyDataBytes
        earlyDataResponder = settings.earlyDataResponder
        maximumCertificateChainBytes = settings.maximumCertificateChainBytes
        maximumCertificateChainLength = settings.maximumCertificateChainLength
        keyLogFile = settings.keyLogFile
    }

    var issuesTickets: Bool { sessionTicketCount > 0 || serverNames?.issueTickets == true }

    struct NamedTrust: Hashable, Sendable {
        let roots: Roots
        let rules: TrustRules
    }

    /// All that this side may show.
    var identities: [TLSIdentity] { [identity].compactMap(\.self) + additionalIdentities }

    var signsSlowly: Bool { identities.contains { $0.privateKey.signsSlowly } }

    /// Hashes only the end of the certificate, and not the chain. Each connection looks its context up, and
    /// hashing whole chains took more than 1 % of a handshake. The end belongs to the signature, and
    /// distinguishes identities as well. Keys come from the settings of this process, never from a peer.
    func hash(into hasher: inout Hasher) {
        hasher.combine(isServer)
        if let certificate = identity?.certificateChain.first {
            certificate.derBytes.suffix(16).withUnsafeBytes { hasher.combine(bytes: $0) }
        }
        hasher.combine(additionalIdentities.count)
        hasher.combine(preSharedKeys?.use)
        hasher.combine(preSharedKeys?.only)
        hasher.combine(rawPublicKeys)
        hasher.combine(minimumVersion)
        hasher.combine(maximumVersion)
        hasher.combine(applicationProtocols)
        hasher.combine(clientCertificates)
        hasher.combine(sessionTicketCount)
    }
}

// MARK: - Resumption

extension ContextKey {
    /// The part of a client's scope that the context knows.
    var clientScope: ResumptionScope {
        var fields = DigestFields()
        fields.append(identity?.certificateChain.map(\.derBytes) ?? [])
        roots.append(to: &fields)
        rules.append(to: &fields)
        policy.append(to: &fields)
        fields.append(minimumVersion.wireValue)
        fields.append(maximumVersion?.wireValue ?? 0)
        fields.append(applicationProtocols.map { Array($0.utf8) })
        appendLimits(to: &fields)
        // A log would have the secrets of the earlier connections of a session of TLS 1.2.
        fields.append(Array((keyLogFile ?? "").utf8))
        return ResumptionScope(fields)
    }

    private func appendLimits(to fields: inout DigestFields) {
        fields.append(maximumCertificateChainBytes)
        fields.append(maximumCertificateChainLength)
    }

    /// The scope of a server whose tickets other processes open: it depends on nothing of this process.
    func serverScope() throws(TLSError) -> ResumptionScope {
        var fields = DigestFields()
        fields.append(identity?.certificateChain.map(\.derBytes) ?? [])
        fields.append(additionalIdentities.flatMap { $0.certificateChain.map(\.derBytes) })
        fields.append(try roots.listedCertificates().map(\.derBytes))
        try rules.appendContents(to: &fields)
        fields.append(clientCertificates.number)
        fields.append(applicationProtocols.map { Array($0.utf8) })
        // OpenSSL resumes with any suite that the client offers, even one that this server would not choose.
        policy.append(to: &fields)
        fields.append(minimumVersion.wireValue)
        appendLimits(to: &fields)
        fields.append(keyLogFile == nil ? 0 : 1)
        return ResumptionScope(fields)
    }
}

extension TLSSettings.ClientCertificates {
    fileprivate var number: Int {
        switch self {
        case .none: 0
        case .optional: 1
        case .required: 2
        case .onRequest: 3
        }
    }
}

extension ContextKey {
    /// The trusted roots, and the stamps that show when their files change.
    enum Roots: Hashable, Sendable {
        case unused
        case system([FileStamp])
        case file(path: String, FileStamp)
        case folder(path: String, [FileStamp])
        case certificates([Certificate])

        init(_ roots: TrustRoots) {
            switch roots {
            case .system: self = .system(SystemTrustStore.currentStamps())
            case .file(let path): self = .file(path: path, FileStamp(path: path))
            case .folder(let path): self = .folder(path: path, CertificateFolder(path: path).stamps)
            case .certificates(let certificates): self = .certificates(certificates)
            }
        }

        /// A store of its own if it `isChanged` later, and for all but the system's roots.
        func trustStore(isChanged: Bool) throws(TLSError) -> TrustStore {
            switch self {
            case .system where isChanged: try TrustStore.systemRoots()
            case .system(let stamps): try SystemTrustStore.store(for: stamps)
            case .unused, .file, .folder, .certificates: try TrustStore(listedCertificates())
            }
        }

        func append(to fields: inout DigestFields) {
            switch self {
            case .unused: fields.append(0)
            case .system(let stamps):
                fields.append(1)
                for stamp in stamps { stamp.append(to: &fields) }
            case .file(_, let stamp):
                fields.append(2)
                stamp.append(to: &fields)
            case .certificates(let certificates):
                fields.append(3)
                fields.append(certificates.map(\.derBytes))
            case .folder(_, let stamps):
                fields.append(4)
                fields.append(stamps.count)
                for stamp in stamps { stamp.append(to: &fields) }
            }
        }

        /// The roots that a server names to its clients.
        func listedCertificates() throws(TLSError) -> [Certificate] {
            switch self {
            case .unused, .system: []
            case .file(let path, _): try Certificate.certificates(file: path)
            case .folder(let path, _): try CertificateFolder(path: path).certificates()
            case .certificates(let certificates): certificates
            }
        }
    }
}

/// What two interchangeable contexts have in common: all settings that do not belong to a single connection.
struct ContextKey: Hashable, Sendable {
    let isServer: Bool
    let identity: TLSIdentity?
    let roots: Roots
    let policy: TLSPolicy
    let minimumVersion: TLSVersion
    let maximumVersion: TLSVersion?
    let applicationProtocols: [String]
    let clientCertificates: TLSSettings.ClientCertificates
    let sessionTicketCount: Int
    let acknowledgesServerName: Bool
    let ticketKeys: TicketKeySourceReference?
    let resumesClientCertificates: Bool
    let resumesSessions: Bool
    let verifiesPeer: Bool
    let maximumCertificateChainBytes: Int
    let maximumCertificateChainLength: Int
    let keyLogFile: String?

    init(_ settings: TLSSettings) {
        isServer = settings.role == .server
        identity = settings.identity
        acknowledgesServerName = settings.acknowledgesServerName
        ticketKeys = settings.ticketKeyReference
        resumesClientCertificates = settings.resumesClientCertificates
        resumesSessions = settings.role != .server && settings.resumption != .none
        verifiesPeer = settings.verifiesPeer
        roots = settings.verifiesPeer ? Roots(settings.trustRoots) : .unused
        policy = settings.policy
        minimumVersion = max(settings.minimumVersion, settings.policy.minimumVersion)
        maximumVersion = settings.maximumVersion
        applicationProtocols = settings.applicationProtocols
        clientCertificates = settings.clientCertificates
        sessionTicketCount = settings.sessionTicketCount
        maximumCertificateChainBytes = settings.maximumCertificateChainBytes
        maximumCertificateChainLength = settings.maximumCertificateChainLength
        keyLogFile = settings.keyLogFile
    }

    var issuesTickets: Bool { sessionTicketCount > 0 }

    /// Hashes only the end of the certificate, and not the chain. Each connection looks its context up, and
    /// hashing whole chains took more than 1 % of a handshake. The end belongs to the signature, and
    /// distinguishes identities as well. Keys come from the settings of this process, never from a peer.
    func hash(into hasher: inout Hasher) {
        hasher.combine(isServer)
        if let certificate = identity?.certificateChain.first {
            certificate.derBytes.suffix(16).withUnsafeBytes { hasher.combine(bytes: $0) }
        }
        hasher.combine(minimumVersion)
        hasher.combine(maximumVersion)
        hasher.combine(applicationProtocols)
        hasher.combine(clientCertificates)
        hasher.combine(sessionTicketCount)
    }
}

extension ContextKey {
    /// The trusted roots, and the stamps that show when their files change.
    enum Roots: Hashable, Sendable {
        case unused
        case system([FileStamp])
        case file(path: String, FileStamp)
        case certificates([Certificate])

        init(_ roots: TrustRoots) {
            switch roots {
            case .system: self = .system(SystemTrustStore.currentStamps())
            case .file(let path): self = .file(path: path, FileStamp(path: path))
            case .certificates(let certificates): self = .certificates(certificates)
            }
        }

        func trustStore() throws(TLSError) -> TrustStore {
            switch self {
            case .system(let stamps): try SystemTrustStore.store(for: stamps)
            case .unused, .file, .certificates: try TrustStore(listedCertificates())
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
            }
        }

        /// The roots that a server names to its clients.
        func listedCertificates() throws(TLSError) -> [Certificate] {
            switch self {
            case .unused, .system: []
            case .file(let path, _): try Certificate.certificates(file: path)
            case .certificates(let certificates): certificates
            }
        }
    }
}

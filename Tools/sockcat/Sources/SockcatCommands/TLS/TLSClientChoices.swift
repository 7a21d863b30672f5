internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// The user's choices for a TLS client, as files and flags.
struct TLSClientChoices: Sendable {
    var authorities: String?
    var serverName: String?
    var pins: [PinArgument] = []
    var trustsPinsAlone = false
    var dane = DANEChoice.none
    var identity: IdentityFiles?
    var preSharedKey: PreSharedKeyArgument?
    var applicationProtocols: [String] = []
    var sessionFile: String?
    var earlyDataFile: String?
    var keyLogFile: String?
    var limits = TLSLimits()
    var isInsecure = false

    /// Reads the files and returns the settings for the library.
    ///
    /// - Parameters:
    ///   - timeout: The time limit for the handshake. `nil` means the library's default.
    ///   - isForDatagrams: Whether the settings are for DTLS.
    func plan(timeout: Duration? = nil, isForDatagrams: Bool = false) throws -> TLSClientPlan {
        var settings = serverName.map { TLSSettings.client(serverName: $0) } ?? .client
        let store = try sessionFile.map { try SessionFile(path: $0) }
        settings.resumption = store.map { .store($0) } ?? .none
        settings.applicationProtocols = applicationProtocols
        settings.keyLogFile = keyLogFile
        settings.identity = try identity?.load()
        if let timeout { settings.handshakeTimeout = timeout }
        if let earlyDataFile { settings.earlyData = TLSEarlyData(try LocalFile.bytes(earlyDataFile)) }
        try chooseTrust(&settings, isForDatagrams: isForDatagrams)
        limits.apply(to: &settings)
        return TLSClientPlan(
            settings: settings, acceptsAnyChain: isInsecure || trustsPinsAlone, dane: dane, isForDatagrams: isForDatagrams,
            sessions: store)
    }

    private func chooseTrust(_ settings: inout TLSClientSettings, isForDatagrams: Bool) throws {
        if let authorities { settings.trustRoots = Self.roots(authorities) }
        if !pins.isEmpty { settings.proof = .certificates(TLSCertificateRules(pins: Set(pins.map(\.digest)))) }
        if isInsecure || trustsPinsAlone { settings.trustEvaluation = .manual }
        if let preSharedKey {
            settings.proof = .preSharedKey(try preSharedKey.key())
            if !isForDatagrams { settings.minimumVersion = .tls13 }
        }
        // Until `prepared(for:within:)` adds the records, no server is accepted.
        if dane != .none { settings.proof = .dane(TLSDANE([], policy: .required), Self.rules(of: settings)) }
    }

    /// The rules that a certificate must satisfy in addition to the TLSA records.
    static func rules(of settings: TLSClientSettings) -> TLSCertificateRules {
        switch settings.proof {
        case .certificates(let rules, _), .dane(_, let rules, _): rules
        default: TLSCertificateRules()
        }
    }

    static func roots(_ path: String) -> TLSTrustRoots {
        LocalFile.isDirectory(path) ? .folder(path: path) : .file(path: path)
    }

    static let insecureWarning: PrintableText =
        "--insecure accepts any certificate: anyone on the network can read and change the data"
}

/// The settings of a TLS client, the trust callback that they require, and the file for its sessions.
struct TLSClientPlan: Sendable {
    var settings: TLSClientSettings
    /// Whether the chain is not verified. Pins are verified nevertheless.
    let acceptsAnyChain: Bool
    /// The TLSA records that the server must match: see `prepared(for:within:)`.
    let dane: DANEChoice
    let isForDatagrams: Bool
    let sessions: SessionFile?

    /// The trust callback to pass to the library together with `settings`.
    var trust: (@Sendable (PeerTrust) async throws -> Bool)? {
        acceptsAnyChain ? { @Sendable _ in true } : nil
    }

    /// Returns the plan for a connection to a server. Only this plan contains the server's TLSA records.
    ///
    /// - Parameter timeout: The time limit for the look-up of the records.
    func prepared(for endpoint: Endpoint, within timeout: Duration) async throws -> TLSClientPlan {
        try await Resolver.within(timeout) { try await prepared(for: endpoint) }
    }

    private func prepared(for endpoint: Endpoint) async throws -> TLSClientPlan {
        let server = try await dane.records(of: endpoint, serverName: settings.serverName, isDatagram: isForDatagrams)
        guard let server else { return self }
        var plan = self
        plan.settings.serverName = server.baseDomain
        plan.settings.proof = .dane(server.rule, TLSClientChoices.rules(of: settings))
        return plan
    }
}

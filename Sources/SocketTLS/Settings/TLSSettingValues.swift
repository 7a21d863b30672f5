/// All that the settings of both sides may hold, for the code below them: `TLSSettings` says by its type
/// which of them a side has.
package struct TLSSettingValues: Sendable, Hashable {
    package var role: TLSRole
    package var identity: TLSIdentity?
    package var additionalIdentities: [TLSIdentity]
    package var trustRoots: TrustRoots
    package var rules: TLSCertificateRules
    package var ocspStapling: TLSOCSPStapling
    package var verifiesHostName: Bool
    package var policy: TLSPolicy
    package var minimumVersion: TLSVersion
    package var maximumVersion: TLSVersion?
    package var applicationProtocols: [String]
    package var proof: TLSProof
    package var clientCertificates: TLSCertificateRequest
    package var tickets: TLSSessionTickets
    package var earlyDataAcceptance: EarlyDataAcceptance?
    package var allowsPostHandshakeAuthentication: Bool
    package var earlyData: TLSEarlyData?
    package var serverNames: TLSServerNames?
    /// The settings were chosen by name, which the server tells the client (RFC 6066, section 3).
    var acknowledgesServerName: Bool
    package var resumption: TLSResumption
    package var maximumCertificateChainBytes: Int
    package var maximumCertificateChainLength: Int
    package var trustEvaluation: TLSTrustEvaluation
    package var handshakeTimeout: Duration
    package var trustTimeout: Duration
    package var keyLogFile: String?
    package var bytesBufferedAtUpgrade: TLSBytesBufferedAtUpgrade
}

extension TLSSettingValues {
    /// The settings of a side, with every other one as it is unless a program changes it.
    init(role: TLSRole, identity: TLSIdentity?, bytesBufferedAtUpgrade: TLSBytesBufferedAtUpgrade) {
        self.init(
            role: role,
            identity: identity,
            additionalIdentities: [],
            trustRoots: .system,
            rules: TLSCertificateRules(),
            ocspStapling: .none,
            verifiesHostName: true,
            policy: .intermediate,
            minimumVersion: .tls12,
            maximumVersion: nil,
            applicationProtocols: [],
            proof: .certificates,
            clientCertificates: .none,
            tickets: .none,
            earlyDataAcceptance: nil,
            allowsPostHandshakeAuthentication: false,
            earlyData: nil,
            serverNames: nil,
            acknowledgesServerName: false,
            resumption: .inMemory,
            maximumCertificateChainBytes: 64 * 1024,
            maximumCertificateChainLength: 10,
            trustEvaluation: .builtIn,
            handshakeTimeout: .seconds(30),
            trustTimeout: .seconds(30),
            keyLogFile: nil,
            bytesBufferedAtUpgrade: bytesBufferedAtUpgrade)
    }

    /// The same, with `host` as the server's name unless a name was given.
    package func expecting(_ host: String?) -> TLSSettingValues {
        guard case .client(serverName: nil) = role else { return self }
        var named = self
        named.role = .client(serverName: host)
        return named
    }
}

extension TLSSettingValues {
    /// The kind of key without which the peer is refused; nil if a certificate, or nothing, may do.
    var requiredKey: KeyProof.Kind? { proof.requiredKey }

    /// Whether this side may show a certificate.
    var showsCertificates: Bool { requiredKey?.isShared != true }

    /// Whether this side accepts certificates.
    var verifiesCertificates: Bool { verifiesPeer && requiredKey == nil }

    /// Whether this side asks the peer for a certificate.
    var verifiesPeer: Bool {
        switch role {
        case .client: true
        case .server: clientCertificates != .none
        }
    }

    var requestsClientCertificates: Bool { role == .server && clientCertificates == .onRequest }
}

/// All settings for both roles, for internal code. The type parameter of `TLSSettings` determines which of
/// them a role has.
package struct TLSSettingValues: Sendable, Hashable {
    package var role: TLSRole
    /// The name or address that a client expects. If `nil`, it expects the host that the program connected
    /// to.
    package var serverName: String?
    package var identity: TLSIdentity?
    package var additionalIdentities: [TLSIdentity]
    package var trustRoots: TLSTrustRoots
    package var rules: TLSCertificateRules
    package var ocspStapling: TLSOCSPStapling
    package var verifiesHostName: Bool
    package var policy: TLSPolicy
    package var minimumVersion: TLSProtocolVersion
    /// Whether `minimumVersion` is a default that applies only to streams.
    package var isMinimumForStreams: Bool
    package var maximumVersion: TLSProtocolVersion?
    package var applicationProtocols: [String]
    package var proof: TLSProof
    package var certificateType: TLSCertificateType
    package var clientCertificates: TLSCertificateRequest
    package var tickets: TLSSessionTickets
    package var acceptedEarlyData: TLSAcceptedEarlyData?
    package var allowsPostHandshakeAuthentication: Bool
    package var earlyData: TLSEarlyData?
    package var serverNames: TLSServerNames?
    /// Whether the server confirms to the client that it recognized the name (RFC 6066, section 3). Set if
    /// the settings were selected for the client's server name (SNI).
    var acknowledgesServerName: Bool
    package var resumption: TLSResumption
    package var maximumCertificateChainBytes: Int
    package var maximumCertificateChainLength: Int
    package var trustEvaluation: TLSTrustEvaluation
    package var handshakeTimeout: Duration
    package var trustTimeout: Duration
    package var keyLogFile: String?
    package var earlyPlaintext: TLSEarlyPlaintext
}

extension TLSSettingValues {
    /// Creates settings for a role, with default values for all settings that are not parameters.
    init(role: TLSRole, serverName: String? = nil, identity: TLSIdentity?, earlyPlaintext: TLSEarlyPlaintext) {
        self.init(
            role: role,
            serverName: serverName,
            identity: identity,
            additionalIdentities: [],
            trustRoots: .system,
            rules: TLSCertificateRules(),
            ocspStapling: .none,
            verifiesHostName: true,
            policy: .intermediate,
            minimumVersion: .tls12,
            isMinimumForStreams: false,
            maximumVersion: nil,
            applicationProtocols: [],
            proof: .certificates,
            certificateType: .x509,
            clientCertificates: .none,
            tickets: .none,
            acceptedEarlyData: nil,
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
            earlyPlaintext: earlyPlaintext)
    }

    /// Returns a copy that expects `host` as the server's name, unless a name was given.
    package func expecting(_ host: String?) -> TLSSettingValues {
        guard role == .client, serverName == nil else { return self }
        var named = self
        named.serverName = host
        return named
    }
}

extension TLSSettingValues {
    /// The kind of key that the peer must have. `nil` if the peer may use a certificate or no proof.
    var requiredKey: KeyProof.Kind? { proof.requiredKey }

    var showsCertificates: Bool { requiredKey?.isShared != true }

    var verifiesCertificates: Bool { verifiesPeer && requiredKey == nil }

    var verifiesPeer: Bool {
        switch role {
        case .client: true
        case .server: clientCertificates != .none
        }
    }

    /// The oldest version to accept.
    var oldestVersion: TLSProtocolVersion { max(minimumVersion, policy.minimumVersion) }

    var issuesTickets: Bool { tickets != .none }

    var requestsClientCertificates: Bool { role == .server && clientCertificates == .onRequest }

    /// Whether these settings, or the settings for some server name, may request client certificates after
    /// the handshake.
    var mayRequestClientCertificates: Bool { requestsClientCertificates || serverNames != nil }
}

// MARK: - Validation

extension TLSSettingValues {
    /// Throws `invalidSettings` for the first invalid setting. Certificates and keys were validated when they
    /// were created.
    func validate(over transport: TLSTransport = .stream) throws(TLSError) {
        if transport == .datagrams, isMinimumForStreams {
            var settings = self
            (settings.minimumVersion, settings.isMinimumForStreams) = (.dtls12, false)
            return try settings.validate(over: transport)
        }
        switch transport {
        case .stream: try validateForStreams()
        case .datagrams: try validateForDatagrams()
        }
        try validateRole()
        try validateVersions()
        try validateApplicationProtocols()
        if issuesTickets { try validateTickets() }
        try validateProof(over: transport)
        if earlyData != nil || acceptedEarlyData != nil { try validateEarlyData() }
        try validateRules()
        try Self.validate(maximumCertificateChainBytes, in: 1024...1_048_576, "maximumCertificateChainBytes")
        try Self.validate(maximumCertificateChainLength, in: 1...100, "maximumCertificateChainLength")
        try Self.validate(handshakeTimeout, "handshakeTimeout")
        try Self.validate(trustTimeout, "trustTimeout")
    }

    func validateFeaturesForDatagrams() throws(TLSError) {
        let demands = [
            ("earlyData", earlyData != nil), ("acceptedEarlyData", acceptedEarlyData != nil),
            ("allowsPostHandshakeAuthentication", allowsPostHandshakeAuthentication),
            ("clients set to .certificatesOnRequest", clientCertificates == .onRequest),
        ]
        if let (name, _) = demands.first(where: \.1) {
            throw Self.invalid("\(name) requires TLS 1.3, but the newest supported DTLS version is 1.2")
        }
        for settings in serverNames?.all ?? [] { try settings.validate(over: .datagrams) }
    }
}

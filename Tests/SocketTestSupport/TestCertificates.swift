package import AsyncSockets
package import AsyncSocketsTesting

/// Certificates for tests, generated once per run.
package enum TestCertificates {
    private static let result = Result { try CertificateAuthority() }
    private static let strangerResult = Result { try CertificateAuthority(name: "Stranger") }

    /// The CA that both sides trust.
    package static var authority: CertificateAuthority { get throws { try result.get() } }
    /// An untrusted CA.
    package static var stranger: CertificateAuthority { get throws { try strangerResult.get() } }

    package static func server(
        for names: [String] = ["localhost"], validity: CertificateAuthority.Validity = .current
    ) throws -> TLSServerSettings {
        .server(identity: try authority.issue(.server(names: names), validity: validity).identity()).patient
    }

    package static func client(for name: String = "localhost") throws -> TLSClientSettings {
        var settings = TLSSettings.client(serverName: name).patient
        settings.trustRoots = try authority.roots
        return settings
    }

    /// Returns a server that requests client certificates from the CA, and a client that has one.
    package static func mutual(
        _ clients: TLSClients = .certificates(.required), clientFrom issuer: CertificateAuthority? = nil
    ) throws -> (client: TLSClientSettings, server: TLSServerSettings) {
        var server = try server()
        server.clients = clients
        server.trustRoots = try authority.roots
        var client = try client()
        client.identity = try (issuer ?? authority).issue(.client(commonName: "alice")).identity()
        return (client, server)
    }
}

extension TLSSettings {
    /// Returns the settings restricted to `version`.
    package func only(_ version: TLSProtocolVersion) -> TLSSettings {
        var settings = self
        settings.minimumVersion = version
        settings.maximumVersion = version
        return settings
    }
}

extension TLSProtocolVersion {
    package static let tested: [TLSProtocolVersion] = [.tls12, .tls13]
}

extension Link {
    /// Both sides call `startTLS` and wait until they are secure.
    package func secure(client clientSettings: TLSClientSettings, server serverSettings: TLSServerSettings) async throws {
        try startTLS(client: clientSettings, server: serverSettings)
        try await atClient.secured()
        try await atServer.secured()
    }

    package func startTLS(client clientSettings: TLSClientSettings, server serverSettings: TLSServerSettings) throws {
        try server.beginTLS(settings: serverSettings)
        try client.beginTLS(settings: clientSettings)
    }
}

import SocketTLS

/// What most tests need: one authority, and settings of both sides that agree.
struct Fixture {
    static let host = "mail.example.org"
    let authority: TestAuthority
    var client: TLSSettings
    var server: TLSSettings

    init(
        _ version: TLSVersion = .tls13, serverName: String = host, request: CertificateRequest = .host(host)
    ) throws {
        authority = try TestAuthority()
        client = .client(serverName: serverName)
        client.trustRoots = try .certificates([authority.certificate])
        server = try .server(identity: authority.identity(request))
        useOnly(version)
    }

    mutating func useOnly(_ version: TLSVersion) {
        client.minimumVersion = version
        client.maximumVersion = version
        server.minimumVersion = version
        server.maximumVersion = version
    }

    /// The server asks for a certificate of the same authority.
    mutating func askForClientCertificate(_ wish: TLSSettings.ClientCertificates = .required) throws {
        server.clientCertificates = wish
        server.trustRoots = try .certificates([authority.certificate])
    }

    mutating func showClientCertificate(_ name: String = "alice") throws {
        client.identity = try authority.identity(.person(name))
    }

    func pair() throws -> EnginePair {
        try EnginePair(client, server)
    }
}

let versions: [TLSVersion] = [.tls12, .tls13]

import AsyncSocketsTesting
import SocketTLS

/// The common fixture: one CA, and matching settings for both sides.
struct Fixture {
    static let host = "mail.example.org"
    let authority: CertificateAuthority
    var client: TLSClientSettings
    var server: TLSServerSettings

    init(
        _ version: TLSProtocolVersion = .tls13, serverName: String = host,
        purpose: CertificateAuthority.Purpose = .server(names: [host]), validity: CertificateAuthority.Validity = .current
    ) throws {
        authority = try CertificateAuthority(name: "Test")
        client = try authority.clientSettings(serverName: serverName)
        server = try .server(identity: authority.identity(purpose, validity: validity))
        useOnly(version)
    }

    mutating func useOnly(_ version: TLSProtocolVersion) {
        client.minimumVersion = version
        client.maximumVersion = version
        server.minimumVersion = version
        server.maximumVersion = version
    }

    /// Makes the server request a certificate from the same CA.
    mutating func askForClientCertificate(_ wish: TLSCertificateRequest = .required) throws {
        server.values.clientCertificates = wish
        server.trustRoots = try authority.roots
    }

    mutating func showClientCertificate(_ name: String = "alice") throws {
        client.identity = try authority.identity(.client(commonName: name))
    }

    /// Returns engines with these settings, and a wire that carries `chunk` bytes at a time.
    func pair(chunk: Int = .max) throws -> EnginePair {
        try EnginePair(client, server, chunk: chunk)
    }

    /// An untrusted root.
    static var stranger: CertificateAuthority {
        get throws { try CertificateAuthority(name: "Somebody else") }
    }
}

extension CertificateAuthority {
    /// Returns an identity signed directly by the root.
    func identity(_ purpose: Purpose, validity: Validity = .current) throws -> TLSIdentity {
        try issue(purpose, validity: validity, signedBy: .root).identity()
    }
}

extension IssuedCertificate {
    /// The certificate without its chain, and its key.
    var pem: String { certificatePEM + privateKeyPEM }
}

struct TestFailure: Error {
    let what: String
}

let versions: [TLSProtocolVersion] = [.tls12, .tls13]

/// The role of an engine.
enum Side: CaseIterable {
    case client, server
}

extension Fixture {
    func engine(_ side: Side, clock: (@Sendable () -> Int)? = nil) throws -> TLSEngine {
        let settings = side == .client ? client.values : server.values
        let context = try TLSContext.context(for: settings)
        guard let clock else { return try TLSEngine(context: context, settings: settings) }
        return try TLSEngine(context: context, settings: settings, clock: clock)
    }

    /// Returns one of our clients and a bare server with a valid certificate.
    func clientAndServer(_ version: TLSProtocolVersion, clock: (@Sendable () -> Int)? = nil) throws -> (
        client: TLSEngine, peer: RawPeer
    ) {
        let issued = try authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        return (try engine(.client, clock: clock), try RawPeer(version, serverPEM: issued.pem))
    }
}

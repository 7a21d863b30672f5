import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Keys in a PKCS #11 token, here SoftHSM, through the engine that Debian packages.
@Suite(
    .timeLimit(.patient), .serialized,
    .enabled(if: dlsym(nil, "ENGINE_by_id") != nil, "OpenSSL 4.0 has no engines, and Debian 12 has no provider for tokens"))
struct TokenTests {
    private let folder: TemporaryFolder
    private static let pin = "1234"

    init() throws {
        folder = try TemporaryFolder()
    }

    private func makeToken(_ keyType: CertificateAuthority.KeyType) async throws -> (certificate: String, settings: String) {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]), keyType: keyType)
        let certificate = try folder.write(issued.certificateChainPEM, to: "chain.pem")
        let key = try folder.write(issued.privateKeyPEM, to: "key.pem")
        let tokens = try folder.makeFolder("tokens")
        let settings = try folder.write("directories.tokendir = \(tokens)\nobjectstore.backend = file\n", to: "settings")
        let program = try Program([
            "sh", "-ec",
            """
            export SOFTHSM2_CONF=\(settings)
            softhsm2-util --init-token --free --label mail --pin \(Self.pin) --so-pin 5678
            softhsm2-util --import \(key) --token mail --label server --id 01 --pin \(Self.pin)
            rm \(key)
            """,
        ])
        let status = await program.exitStatus()
        try #require(status == 0, "\(program.printed)")
        return (certificate, settings)
    }

    /// Returns Debian's folder, because another OpenSSL would search its own.
    private func engines() throws -> String {
        let folders = try FileManager.default.contentsOfDirectory(atPath: "/usr/lib").map { "/usr/lib/\($0)/engines-3" }
        return try #require(folders.first { FileManager.default.fileExists(atPath: $0 + "/pkcs11.so") })
    }

    private func server(_ token: (certificate: String, settings: String), pin: String, object: String = "server") throws
        -> Program
    {
        let probe = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent().appendingPathComponent(
            "EngineProbe")
        return try Program([
            "SOFTHSM2_CONF=\(token.settings)", "OPENSSL_ENGINES=\(try engines())", probe.path, "token-server", token.certificate,
            "pkcs11:token=mail;object=\(object);type=private", pin,
        ])
    }

    @Test(arguments: CertificateAuthority.KeyType.allCases, TLSProtocolVersion.tested)
    func aServersKeyStaysInItsToken(_ keyType: CertificateAuthority.KeyType, _ version: TLSProtocolVersion) async throws {
        let server = try server(await makeToken(keyType), pin: Self.pin)
        defer { server.stop() }
        try await eventually("it prints its port") { server.printed.hasSuffix("\n") }
        let port = try #require(UInt16(server.printed.dropLast()), "\(server.printed)")
        let settings = try TestCertificates.client().only(version)
        let sessions = try await withThrowingTaskGroup { group in
            for _ in 0..<8 {
                group.addTask {
                    try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: settings) { $0.tlsSession }
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(sessions.compactMap { $0?.protocolVersion } == [TLSProtocolVersion](repeating: version, count: 8))
    }

    @Test func aWrongPINIsAnError() async throws {
        let token = try await makeToken(.p256)
        let server = try server(token, pin: "0000")
        #expect(await server.exitStatus() == 1)
        #expect(server.printed.contains("or the PIN is wrong"), "\(server.printed)")
        let other = try self.server(token, pin: Self.pin, object: "other")
        #expect(await other.exitStatus() == 1)
        #expect(other.printed.contains("no private key at the URI"), "\(other.printed)")
        #expect(!other.printed.contains(Self.pin))
    }
}

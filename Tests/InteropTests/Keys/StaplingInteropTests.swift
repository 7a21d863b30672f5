import AsyncSockets
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// OCSP responses that openssl(1) creates, and staples or requests.
@Suite(.timeLimit(.patient), .serialized) struct StaplingInteropTests {
    private let folder: TemporaryFolder

    /// Creates a CA, a certificate, and a response for it.
    init() async throws {
        folder = try TemporaryFolder()
        let index = try folder.write("V\t301231235959Z\t\t1234\tunknown\t/CN=localhost\n", to: "index.txt")
        let names = try folder.write("subjectAltName=DNS:localhost\n", to: "names")
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        let program = try Program([
            "sh", "-ec",
            """
            cd \(folder.path)
            openssl req -x509 \(key) -keyout ca.key -out ca.pem -days 2 -subj /CN=Authority
            openssl req \(key) -keyout leaf.key -out leaf.csr -subj /CN=localhost
            openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -set_serial 0x1234 -days 2 -extfile \(names) -out leaf.pem
            openssl ocsp -issuer ca.pem -cert leaf.pem -index \(index) -CA ca.pem -rsigner ca.pem -rkey ca.key \
            -ndays 1 -respout response.der
            """,
        ])
        let status = await program.exitStatus()
        try #require(status == 0, "\(program.printed)")
    }

    private func file(_ name: String) -> String { folder.path + "/" + name }

    private var authority: [TLSCertificate] { get throws { try TLSCertificate.certificates(file: file("ca.pem")) } }

    @Test(arguments: TLSProtocolVersion.tested) func opensslGetsOurResponse(_ version: TLSProtocolVersion) async throws {
        let response = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file("response.der"))))
        let identity = try TLSIdentity(certificateFile: file("leaf.pem"), privateKeyFile: file("leaf.key"))
        let settings = TLSSettings.server(identity: try identity.stapling(ocspResponse: response, issuer: try authority.first))
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings.only(version))
        try await withThrowingTaskGroup { group in
            group.addTask { try await listener.run { _ = try await $0.readToEnd() } }
            let program = try Program(
                [
                    "openssl", "s_client", "-connect", "127.0.0.1:\(listener.localPort)", "-status", "-CAfile", file("ca.pem"),
                ],
                input: "")
            _ = await program.exitStatus()
            #expect(program.printed.contains("OCSP Response Status: successful"), "\(program.printed.suffix(1500))")
            #expect(program.printed.contains("Cert Status: good"), "\(program.printed.suffix(1500))")
            await listener.close(timeout: .zero)
            try await group.waitForAll()
        }
    }

    @Test(arguments: TLSProtocolVersion.tested) func weTakeTheResponseOfOpenssl(_ version: TLSProtocolVersion) async throws {
        let port = try Loopback.freePort()
        let program = try Program([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", file("leaf.pem"), "-key", file("leaf.key"),
            "-status_file", file("response.der"), "-quiet",
        ])
        defer { program.stop() }
        let (first, _) = try await Loopback.connect(to: port, of: program)
        first.disconnect()
        var settings = TLSSettings.client(serverName: "localhost").only(version)
        settings.trustRoots = .certificates(try authority)
        settings.proof = .certificates(TLSCertificateRules(), ocspStapling: .required)
        let session = try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: settings) { socket in
            socket.tlsSession
        }
        #expect(session?.protocolVersion == version)
    }
}

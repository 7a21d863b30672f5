import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// The capabilities of the `openssl` in the PATH.
private enum OpenSSLProgram {
    static let isTestable = !TLSRawPublicKeys.isSupported || programHasRawKeys

    private static var programHasRawKeys: Bool {
        let process = Process()
        let output = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["openssl", "s_server", "-help"]
        (process.standardOutput, process.standardError) = (output, output)
        guard (try? process.run()) != nil else { return false }
        let text = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return String(decoding: text, as: UTF8.self).contains("-enable_server_rpk")
    }
}

/// Raw public keys with OpenSSL's programs, on both sides.
///
/// They need `openssl` 3.2 or newer in the PATH, of the same version as the library. If the library is older,
/// the tests check that the settings are rejected.
@Suite(
    .timeLimit(.patient), .serialized,
    .enabled(if: OpenSSLProgram.isTestable, "this openssl(1) has no raw public keys"))
struct RawPublicKeyInteropTests {
    private let folder: TemporaryFolder
    private let client: TLSClientSettings
    private let server: TLSServerSettings
    private let own: (certificate: String, key: String)
    private let peer: (certificate: String, key: String)
    private let peerKey: [UInt8]

    /// `peer` belongs to the program, and `own` to us.
    init() throws {
        folder = try TemporaryFolder()
        let (ours, theirs) = try (
            TestCertificates.authority.issue(.server(names: ["localhost"])),
            TestCertificates.authority.issue(.server(names: ["localhost"]))
        )
        (own, peer) = try (ours.write(to: folder.path), theirs.write(to: folder.path))
        peerKey = try #require(theirs.identity().privateKey.publicKey)
        let keys = try TLSRawPublicKeys(expected: [peerKey])
        var (client, server) = try (TLSSettings.client(serverName: "localhost"), TLSSettings.server(identity: ours.identity()))
        client.identity = try ours.identity()
        (client.proof, server.clients) = (.rawPublicKeys(keys), .rawPublicKeys(keys))
        (client.presentsRawPublicKey, server.presentsRawPublicKey) = (true, true)
        (self.client, self.server) = (client, server)
    }

    /// Returns whether raw keys are supported. If not, checks that the settings are rejected.
    private func isSupported() async throws -> Bool {
        if TLSRawPublicKeys.isSupported { return true }
        let link = try await Link.make()
        let error = #expect(throws: AsyncSocketError.self) { try link.client.beginTLS(settings: client) }
        #expect(error?.tls?.code == .invalidSettings && error?.tls?.message.contains("OpenSSL 3.2") == true)
        return false
    }

    private func startServer(_ port: UInt16, _ version: TLSProtocolVersion, _ more: [String]) throws -> Program {
        try Program(
            [
                "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", peer.certificate, "-key", peer.key, "-rev",
                "-quiet", version == .tls13 ? "-tls1_3" : "-tls1_2",
            ] + more)
    }

    @Test(arguments: TLSProtocolVersion.tested) func opensslServerIsKnownByItsKey(_ version: TLSProtocolVersion) async throws {
        guard try await isSupported() else { return }
        let port = try Loopback.freePort()
        let program = try startServer(port, version, ["-enable_server_rpk", "-enable_client_rpk", "-Verify", "1"])
        defer { program.stop() }
        let (socket, recorder) = try await Loopback.connect(to: port, of: program)
        try socket.beginTLS(settings: client.only(version))
        try await recorder.secured()
        #expect(socket.tlsSession?.peerPublicKey == peerKey && socket.tlsSession?.peerCertificates == [])
        socket.write(Data("drawer\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: Data("\n"), withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "reward\n")
        socket.disconnect()
        _ = try await recorder.disconnected()
    }

    @Test(arguments: TLSProtocolVersion.tested, [true, false])
    func opensslServerWithAnotherProofIsRefused(_ version: TLSProtocolVersion, showsKey: Bool) async throws {
        guard try await isSupported() else { return }
        let port = try Loopback.freePort()
        let program = try startServer(port, version, showsKey ? ["-enable_server_rpk"] : [])
        defer { program.stop() }
        var settings = client.only(version)
        let ownKey = try #require(client.identity?.privateKey.publicKey)
        if showsKey { settings.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [ownKey])) }
        let (socket, recorder) = try await Loopback.connect(to: port, of: program)
        try socket.beginTLS(settings: settings)
        let error = try await recorder.disconnected()
        #expect(error?.tls?.code == (showsKey ? .rawPublicKeyMismatch : .rawPublicKeyMissing))
        #expect(error?.tls?.sentAlert == (showsKey ? .certificateUnknown : .unsupportedCertificate))
        #expect(socket.tlsSession == nil)
    }

    private func runClient(_ port: UInt16, _ version: TLSProtocolVersion, _ more: [String]) async throws -> (Int32, String) {
        let program = try Program(
            [
                "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-starttls", "smtp", "-crlf", "-ign_eof",
                "-servername", "localhost", "-enable_server_rpk", version == .tls13 ? "-tls1_3" : "-tls1_2",
            ] + more, input: "NOOP over TLS\nQUIT\n")
        return (await program.exitStatus(), program.printed)
    }

    @Test(arguments: TLSProtocolVersion.tested) func opensslClientIsKnownByItsKey(_ version: TLSProtocolVersion) async throws {
        guard try await isSupported() else { return }
        let server = try MiniSMTPServer(server.only(version))
        let (status, printed) = try await runClient(
            server.port, version, ["-enable_client_rpk", "-cert", peer.certificate, "-key", peer.key])
        #expect(status == 0 && printed.contains("Server-to-client raw public key negotiated"), "\(printed)")
        #expect(printed.contains("Client-to-server raw public key negotiated"), "\(printed)")
        #expect(server.securedLines.contains("NOOP over TLS\r\n"))
        #expect(server.sessions.map(\.peerPublicKey) == [peerKey])
    }

    @Test(arguments: TLSProtocolVersion.tested) func opensslClientWithAnotherProofIsRefused(_ version: TLSProtocolVersion)
        async throws
    {
        guard try await isSupported() else { return }
        let server = try MiniSMTPServer(server.only(version))
        let proofs = [
            ["-enable_client_rpk", "-cert", own.certificate, "-key", own.key], ["-cert", peer.certificate, "-key", peer.key], [],
        ]
        for proof in proofs {
            let (_, printed) = try await runClient(server.port, version, proof)
            #expect(printed.contains("alert"), "\(printed)")
        }
        #expect(server.sessions.isEmpty && server.securedLines.isEmpty)
    }
}

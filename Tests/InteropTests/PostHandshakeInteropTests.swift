import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import Testing

/// A client of ours that `openssl s_server` asks for its certificate after the handshake.
@Suite(.timeLimit(.minutes(5)), .serialized) struct PostHandshakeInteropTests {
    @Test(arguments: [true, false]) func opensslsServerAsksOurClient(isAllowed: Bool) async throws {
        let folder = try TemporaryFolder()
        let authority = try TestCertificates.authority
        let files = try authority.issue(.server(names: ["localhost"])).write(to: folder.path)
        let port = try Loopback.freePort()
        let server = try Program([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", files.certificate, "-cert_chain", files.certificate,
            "-key", files.key, "-tls1_3", "-state", "-naccept", "2", "-CAfile", try authority.writeRoot(to: folder.path),
        ])
        defer { server.stop() }
        let (probe, _) = try await Loopback.connect(to: port, of: server)
        probe.disconnect()
        var settings = try TestCertificates.mutual().client
        settings.allowsPostHandshakeAuthentication = isAllowed
        let (socket, recorder) = try await Loopback.connect(to: port, of: server)
        try socket.beginTLS(settings: settings)
        try await recorder.secured()
        socket.readData(withTimeout: 60, tag: 0)
        // The command has to come at the beginning of a line that is all there is.
        try server.write("c\n")
        // It has our certificate and our signature, or could not ask.
        let answer = isAllowed ? "TLS read certificate verify" : "extension not received"
        try await eventually("the server asks, or cannot") { server.printed.contains(answer) }
        try server.write("hello\n")
        #expect(try await recorder.readText() == "hello\n")
        socket.write(Data("over\n".utf8), withTimeout: 60, tag: 0)
        try await eventually("data goes on") { server.printed.contains("over") }
        socket.disconnect()
    }
}

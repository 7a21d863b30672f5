import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// One of our clients, whose certificate `openssl s_server` requests after the handshake.
@Suite(.timeLimit(.patient), .serialized) struct PostHandshakeInteropTests {
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
        socket.readData(withTimeout: .patient, tag: 0)
        // The command must be at the start of a line and the only input.
        try server.write("c\n")
        // It has received our certificate and signature, or could not request them.
        let answer = isAllowed ? "TLS read certificate verify" : "extension not received"
        try await eventually("the server asks, or cannot") { server.printed.contains(answer) }
        try server.write("hello\n")
        #expect(try await recorder.readText() == "hello\n")
        socket.write(Data("over\n".utf8), withTimeout: .patient, tag: 0)
        try await eventually("data goes on") { server.printed.contains("over") }
        socket.disconnect()
    }
}

extension PostHandshakeInteropTests {
    @Test(arguments: [true, false], [true, false])
    func aServerRequestsACertificateFromOpenSSLAfterTheHandshake(hasCertificate: Bool, isOffered: Bool) async throws {
        let folder = try TemporaryFolder()
        let root = try TestCertificates.authority.writeRoot(to: folder.path)
        let settings = try TestCertificates.mutual(.certificatesOnRequest()).server
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        var arguments = [
            "openssl", "s_client", "-connect", "127.0.0.1:\(listener.localPort)", "-CAfile", root, "-verify_return_error",
            "-servername", "localhost", "-tls1_3", "-quiet",
        ]
        if isOffered { arguments.append("-enable_pha") }
        if hasCertificate {
            let files = try TestCertificates.authority.issue(.client(commonName: "alice")).write(to: folder.path)
            arguments += ["-cert", files.certificate, "-cert_chain", files.certificate, "-key", files.key]
        }
        async let accepted = listener.connections.first { _ in true }
        let program = try Program(arguments)
        defer { program.stop() }
        try program.write("GET /secret\n")
        let socket = try #require(try await accepted)
        #expect(try await socket.readLine() == "GET /secret")
        #expect(socket.tlsSession?.peerCertificates.isEmpty == true)
        if isOffered {
            for _ in 0..<2 {
                let session = try await socket.requestClientCertificate(isRequired: false)
                #expect(session.peerCertificates.first?.commonName == (hasCertificate ? "alice" : nil))
            }
        } else {
            let error = await #expect(throws: AsyncSocketError.self) { try await socket.requestClientCertificate() }
            #expect(error?.tls?.code == .postHandshakeAuthenticationUnavailable)
        }
        try await socket.write("welcome\n")
        try await eventually("the client has the answer") { program.printed.contains("welcome") }
        try program.write("thanks\n")
        #expect(try await socket.readLine() == "thanks")
        if isOffered, !hasCertificate {
            let error = await #expect(throws: AsyncSocketError.self) { try await socket.requestClientCertificate() }
            #expect(error?.tls?.code == .clientCertificateMissing && error?.tls?.sentAlert == .certificateRequired)
            try await eventually("the client prints the alert") { program.printed.contains("certificate required") }
        }
        socket.disconnect()
    }
}

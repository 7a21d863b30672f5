import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Our client with third-party servers.
@Suite(.timeLimit(.patient), .serialized) struct ClientInteropTests {
    /// Sends a line and returns the last line of the reply.
    private func say(_ line: String, over socket: AsyncSocket, _ recorder: Recorder) async throws -> String {
        socket.write(Data("\(line)\r\n"), withTimeout: .patient, tag: 0)
        return try await answer(on: socket, recorder)
    }

    private func answer(on socket: AsyncSocket, _ recorder: Recorder) async throws -> String {
        while true {
            socket.readData(to: .lineEnd, withTimeout: .patient, maxLength: 10_000, tag: 0)
            let line = try await recorder.readText()
            // SMTP marks all lines but the last with a hyphen (RFC 5321, 4.2.1), IMAP begins them with an
            // asterisk (RFC 9051, 2.2.2).
            if !line.dropFirst(3).hasPrefix("-"), !line.hasPrefix("*") || line.hasPrefix("* OK") { return line }
        }
    }

    private func secure(_ socket: AsyncSocket, _ recorder: Recorder, _ settings: TLSClientSettings) async throws -> TLSSession {
        try socket.beginTLS(settings: settings)
        try await recorder.secured()
        return try #require(socket.tlsSession)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func postfixTakesAMailAfterSTARTTLS(_ version: TLSProtocolVersion, withClientCertificate: Bool) async throws {
        let authority = try TestCertificates.authority
        let postfix = try Postfix(
            authority.issue(.server(names: ["localhost"])), clientsOf: withClientCertificate ? authority : nil)
        defer { postfix.stop() }
        let (socket, recorder) = try await Loopback.connect(to: postfix.port, of: postfix.program)
        #expect(try await answer(on: socket, recorder).hasPrefix("220 "))
        #expect(try await say("EHLO client.example", over: socket, recorder).hasPrefix("250 "))
        #expect(try await say("STARTTLS", over: socket, recorder).hasPrefix("220 "))
        let settings = withClientCertificate ? try TestCertificates.mutual().client : try TestCertificates.client()
        let session = try await secure(socket, recorder, settings.only(version))
        #expect(session.protocolVersion == version)
        for (line, code) in [
            ("EHLO client.example", "250"), ("MAIL FROM:<from@localhost>", "250"), ("RCPT TO:<to@localhost>", "250"),
            ("DATA", "354"),
        ] {
            #expect(try await say(line, over: socket, recorder).hasPrefix(code))
        }
        let accepted = try await say("Subject: test\r\n\r\nHello.\r\n.", over: socket, recorder)
        #expect(accepted.hasPrefix("250 ") && accepted.contains("queued"))
        #expect(try await say("QUIT", over: socket, recorder).hasPrefix("221 "))
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
    }

    @Test func postfixRefusesAClientWithoutACertificate() async throws {
        let authority = try TestCertificates.authority
        let postfix = try Postfix(authority.issue(.server(names: ["localhost"])), clientsOf: authority)
        defer { postfix.stop() }
        let (socket, recorder) = try await Loopback.connect(to: postfix.port, of: postfix.program)
        _ = try await answer(on: socket, recorder)
        _ = try await say("EHLO client.example", over: socket, recorder)
        _ = try await say("STARTTLS", over: socket, recorder)
        _ = try await secure(socket, recorder, TestCertificates.client().only(.tls12))
        // Its handshake requests a certificate. If there is none, it reports that over TLS (RFC 5321, section
        // 3.8).
        let refusal = try await say("EHLO client.example", over: socket, recorder)
        #expect(refusal.hasPrefix("421 ") && refusal.contains("certificate"))
        #expect(try await recorder.disconnected()?.fault == .peer)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func dovecotLogsUsInAfterSTARTTLS(_ version: TLSProtocolVersion, withClientCertificate: Bool) async throws {
        let authority = try TestCertificates.authority
        let dovecot = try Dovecot(
            authority.issue(.server(names: ["localhost"])), clientsOf: withClientCertificate ? authority : nil)
        defer { dovecot.stop() }
        let (socket, recorder) = try await Loopback.connect(to: dovecot.port, of: dovecot.program)
        let greeting = try await answer(on: socket, recorder)
        #expect(greeting.contains("STARTTLS"))
        #expect(try await say("a1 STARTTLS", over: socket, recorder).hasPrefix("a1 OK"))
        let settings = withClientCertificate ? try TestCertificates.mutual().client : try TestCertificates.client()
        let session = try await secure(socket, recorder, settings.only(version))
        #expect(session.protocolVersion == version)
        #expect(try await say("a2 LOGIN tester secret", over: socket, recorder).hasPrefix("a2 OK"))
        #expect(try await say("a3 LOGOUT", over: socket, recorder).hasPrefix("a3 OK"))
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func opensslServerUpgradesBehindAPlaintextPorter(_ version: TLSProtocolVersion, withClientCertificate: Bool) async throws {
        let authority = try TestCertificates.authority
        let folder = try TemporaryFolder()
        let files = try authority.issue(.server(names: ["localhost"])).write(to: folder.path)
        let port = try Loopback.freePort()
        var arguments = [
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", files.certificate, "-cert_chain", files.certificate,
            "-key", files.key, "-rev", "-quiet",
        ]
        if withClientCertificate {
            arguments += ["-CAfile", try authority.writeRoot(to: folder.path), "-Verify", "3", "-verify_return_error"]
        }
        let program = try Program(arguments)
        defer { program.stop() }
        _ = try await Loopback.connect(to: port, of: program)
        let porter = try StartTLSPorter(inFrontOf: port)
        let (socket, recorder) = try await Loopback.connect(to: porter.port, of: program)
        #expect(try await answer(on: socket, recorder).hasPrefix("220 "))
        #expect(try await say("STARTTLS", over: socket, recorder).hasPrefix("220 "))
        let settings = withClientCertificate ? try TestCertificates.mutual().client : try TestCertificates.client()
        let session = try await secure(socket, recorder, settings.only(version))
        #expect(session.protocolVersion == version)
        socket.write(Data("drawer\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: Data("\n"), withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText().hasPrefix("reward"))
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
    }
}

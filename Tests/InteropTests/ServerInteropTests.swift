import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Third-party clients with our server.
@Suite(.timeLimit(.patient), .serialized) struct ServerInteropTests {
    private let folder: TemporaryFolder
    private let root: String

    init() throws {
        folder = try TemporaryFolder()
        root = try TestCertificates.authority.writeRoot(to: folder.path)
    }

    private func makeServer(_ version: TLSProtocolVersion, wantsClientCertificate: Bool) throws -> MiniSMTPServer {
        let settings = wantsClientCertificate ? try TestCertificates.mutual().server : try TestCertificates.server()
        return try MiniSMTPServer(settings.only(version))
    }

    private func clientFiles() throws -> (certificate: String, key: String) {
        try TestCertificates.authority.issue(.client(commonName: "alice")).write(to: folder.path)
    }

    /// Checks the session of the server's last connection.
    private func expectSecured(_ server: MiniSMTPServer, by name: String?, _ version: TLSProtocolVersion) throws {
        let session = try #require(server.sessions.last)
        #expect(session.protocolVersion == version)
        #expect(session.peerCertificates.first?.commonName == name)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func opensslClientUpgrades(_ version: TLSProtocolVersion, withClientCertificate: Bool) async throws {
        let server = try makeServer(version, wantsClientCertificate: withClientCertificate)
        var arguments = [
            "openssl", "s_client", "-connect", "127.0.0.1:\(server.port)", "-starttls", "smtp", "-CAfile", root,
            "-verify_return_error",
            "-verify_hostname", "localhost", "-servername", "localhost", "-quiet", "-crlf",
        ]
        if withClientCertificate {
            let files = try clientFiles()
            arguments += ["-cert", files.certificate, "-cert_chain", files.certificate, "-key", files.key]
        }
        let program = try Program(arguments, input: "NOOP over TLS\nQUIT\n")
        #expect(await program.exitStatus() == 0, "\(program.printed)")
        #expect(server.securedLines.contains("NOOP over TLS\r\n"))
        try expectSecured(server, by: withClientCertificate ? "alice" : nil, version)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func curlHandsOverAMail(_ version: TLSProtocolVersion, withClientCertificate: Bool) async throws {
        let server = try makeServer(version, wantsClientCertificate: withClientCertificate)
        let mail = try folder.write("Subject: test\r\n\r\nHello from curl.\r\n", to: "mail")
        var arguments = [
            "curl", "--silent", "--show-error", "--ssl-reqd", "--cacert", root, "--max-time", "30",
            "--mail-from", "from@localhost", "--mail-rcpt", "to@localhost", "--upload-file", mail,
        ]
        if withClientCertificate {
            let files = try clientFiles()
            arguments += ["--cert", files.certificate, "--key", files.key]
        }
        let program = try Program(arguments + ["smtp://localhost:\(server.port)"])
        #expect(await program.exitStatus() == 0, "\(program.printed)")
        #expect(server.securedLines.contains { $0.contains("Hello from curl.") })
        try expectSecured(server, by: withClientCertificate ? "alice" : nil, version)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func gnutlsClientUpgrades(_ version: TLSProtocolVersion, withClientCertificate: Bool) async throws {
        let server = try makeServer(version, wantsClientCertificate: withClientCertificate)
        var arguments = [
            "gnutls-cli", "--port", "\(server.port)", "--starttls-proto", "smtp", "--x509cafile", root, "--verify-hostname",
            "localhost",
            "--crlf",
        ]
        if withClientCertificate {
            let files = try clientFiles()
            arguments += ["--x509certfile", files.certificate, "--x509keyfile", files.key]
        }
        let program = try Program(arguments + ["localhost"], input: "NOOP over TLS\nQUIT\n")
        #expect(await program.exitStatus() == 0, "\(program.printed)")
        #expect(server.securedLines.contains("NOOP over TLS\r\n"))
        try expectSecured(server, by: withClientCertificate ? "alice" : nil, version)
    }

    /// Each connection uses the ticket of the previous one.
    @Test(arguments: TLSProtocolVersion.tested)
    func opensslClientComesBack(_ version: TLSProtocolVersion) async throws {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(1)
        let server = try MiniSMTPServer(settings)
        let file = "\(folder.path)/session"
        for visit in 0..<3 {
            let arguments = [
                "openssl", "s_client", version == .tls13 ? "-tls1_3" : "-tls1_2", "-connect", "127.0.0.1:\(server.port)",
                "-starttls", "smtp", "-CAfile", root, "-verify_return_error", "-servername", "localhost", "-ign_eof", "-crlf",
                "-sess_out", file,
            ]
            let program = try Program(
                arguments + (visit > 0 ? ["-sess_in", file] : []), input: "NOOP\nQUIT\n")
            #expect(await program.exitStatus() == 0, "\(program.printed)")
            #expect(server.sessions.count == visit + 1)
            #expect(server.sessions.last?.isResumed == (visit > 0), "\(program.printed)")
            #expect(server.sessions.last?.protocolVersion == version)
            #expect(FileManager.default.fileExists(atPath: file))
        }
    }

    @Test func opensslClientWithoutACertificateIsRefused() async throws {
        let server = try makeServer(.tls12, wantsClientCertificate: true)
        let program = try Program(
            ["openssl", "s_client", "-connect", "127.0.0.1:\(server.port)", "-starttls", "smtp", "-CAfile", root, "-quiet"],
            input: "QUIT\n")
        #expect(await program.exitStatus() != 0)
        #expect(program.printed.contains("alert"), "\(program.printed)")
        #expect(server.sessions.isEmpty)
    }

    @Test func curlRefusesOurServerUnderAnotherName() async throws {
        let settings = try TestCertificates.server(for: ["mail.example.org"])
        let server = try MiniSMTPServer(settings)
        let program = try Program(
            [
                "curl", "--silent", "--show-error", "--ssl-reqd", "--cacert", root, "--max-time", "30",
                "smtp://localhost:\(server.port)",
            ])
        #expect(await program.exitStatus() != 0)
        #expect(server.securedLines.isEmpty)
    }
}

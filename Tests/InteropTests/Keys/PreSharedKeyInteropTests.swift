import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Pre-shared keys with OpenSSL's and GnuTLS's programs, on both sides.
@Suite(.timeLimit(.patient), .serialized) struct PreSharedKeyInteropTests {
    private static let bytes = Array("interop key 1234".utf8)
    private static let otherBytes = Array("another key 1234".utf8)

    private static func hex(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private func client(_ version: TLSProtocolVersion, _ identity: String = "alice", _ key: [UInt8] = bytes) throws
        -> TLSClientSettings
    {
        try TLSSettings.client(
            serverName: "localhost", preSharedKey: TLSPreSharedKey(identity: identity, key: key)
        ).only(version)
    }

    private func server(_ version: TLSProtocolVersion) throws -> TLSServerSettings {
        let keys = try [("bob", Self.otherBytes), ("alice", Self.bytes)].map { try TLSPreSharedKey(identity: $0, key: $1) }
        return try TLSSettings.server(preSharedKeys: TLSPreSharedKeys(keys)).only(version)
    }

    // MARK: - Our client

    /// Upgrades a connection to `port` and returns its session, or throws the error.
    private func upgrade(_ port: UInt16, _ program: Program, _ settings: TLSClientSettings) async throws -> TLSSession {
        let (socket, recorder) = try await Loopback.connect(to: port, of: program)
        try socket.beginTLS(settings: settings)
        try await recorder.secured()
        let session = try #require(socket.tlsSession)
        socket.write(Data("drawer\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: Data("\n"), withTimeout: .patient, tag: 0)
        let answer = try await recorder.readText()
        #expect(answer.hasPrefix("reward") || answer.hasPrefix("drawer"))
        socket.disconnect()
        _ = try await recorder.disconnected()
        return session
    }

    private func failure(_ port: UInt16, _ program: Program, _ settings: TLSClientSettings) async throws -> TLSError? {
        let (socket, recorder) = try await Loopback.connect(to: port, of: program)
        try socket.beginTLS(settings: settings)
        let error = try await recorder.disconnected()
        #expect(socket.tlsSession == nil)
        return error?.tls
    }

    private func expectKey(_ session: TLSSession, _ version: TLSProtocolVersion) {
        #expect(session.preSharedKeyIdentity == Array("alice".utf8) && session.protocolVersion == version)
        #expect(session.peerCertificates.isEmpty && !session.isResumed)
        if version == .tls12 { #expect(session.cipherSuite == "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256") }
    }

    private func opensslServer(_ port: UInt16, _ more: [String] = ["-nocert"]) throws -> Program {
        try Program(
            [
                "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-psk", Self.hex(Self.bytes), "-psk_identity", "alice",
                "-cipher", "ECDHE-PSK-CHACHA20-POLY1305", "-rev", "-quiet",
            ] + more)
    }

    @Test(arguments: TLSProtocolVersion.tested) func opensslServerTakesOurKey(_ version: TLSProtocolVersion) async throws {
        let port = try Loopback.freePort()
        let program = try opensslServer(port)
        defer { program.stop() }
        expectKey(try await upgrade(port, program, client(version)), version)
        let wrong = try await failure(port, program, client(version, "alice", Self.otherBytes))
        #expect(wrong?.code == .preSharedKeyMismatch && wrong?.alert != nil)
        // In TLS 1.2, the program accepts every identity.
        guard version == .tls13 else { return }
        let unknown = try await failure(port, program, client(version, "mallory"))
        #expect(unknown?.code == .peerAlert && unknown?.alert == .handshakeFailure)
    }

    private func gnutlsServer(_ port: UInt16, _ version: TLSProtocolVersion, _ folder: TemporaryFolder) throws -> Program {
        let passwords = try folder.write("alice:\(Self.hex(Self.bytes))\n", to: "keys")
        return try Program([
            "gnutls-serv", "--port", "\(port)", "--echo", "--quiet", "--pskpasswd", passwords, "--priority",
            Self.priority(version),
        ])
    }

    private static func priority(_ version: TLSProtocolVersion) -> String {
        version == .tls13
            ? "NORMAL:-VERS-ALL:+VERS-TLS1.3:+DHE-PSK:+ECDHE-PSK:+PSK"
            : "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK"
    }

    @Test(arguments: TLSProtocolVersion.tested) func gnutlsServerTakesOurKey(_ version: TLSProtocolVersion) async throws {
        let (port, folder) = (try Loopback.freePort(), try TemporaryFolder())
        let program = try gnutlsServer(port, version, folder)
        defer { program.stop() }
        expectKey(try await upgrade(port, program, client(version)), version)
        let wrong = try await failure(port, program, client(version, "alice", Self.otherBytes))
        #expect(wrong?.fault == .peer && wrong?.alert != nil, "\(String(describing: wrong)) \(program.printed)")
        let unknown = try await failure(port, program, client(version, "mallory"))
        #expect(unknown?.fault == .peer, "\(String(describing: unknown)) \(program.printed)")
    }

    /// A server with certificates and without pre-shared keys.
    @Test(arguments: TLSProtocolVersion.tested) func opensslServerWithACertificateIsRefused(_ version: TLSProtocolVersion)
        async throws
    {
        let folder = try TemporaryFolder()
        let files = try TestCertificates.authority.issue(.server(names: ["localhost"])).write(to: folder.path)
        let port = try Loopback.freePort()
        let program = try Program([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", files.certificate, "-key", files.key, "-rev",
            "-quiet",
        ])
        defer { program.stop() }
        let error = try await failure(port, program, client(version))
        #expect(error?.code == (version == .tls13 ? .preSharedKeyMissing : .peerAlert))
    }

    // MARK: - Our server

    private func opensslClient(_ port: UInt16, _ version: TLSProtocolVersion, _ identity: String, _ key: [UInt8]) throws
        -> Program
    {
        try Program(
            [
                "openssl", "s_client", version == .tls13 ? "-tls1_3" : "-tls1_2", "-connect", "127.0.0.1:\(port)", "-starttls",
                "smtp", "-psk", Self.hex(key), "-psk_identity", identity, "-servername", "localhost", "-quiet", "-crlf",
            ], input: "NOOP over TLS\nQUIT\n")
    }

    private func gnutlsClient(_ port: UInt16, _ version: TLSProtocolVersion, _ identity: String, _ key: [UInt8]) throws -> Program
    {
        try Program(
            [
                "gnutls-cli", "--port", "\(port)", "--starttls-proto", "smtp", "--crlf", "--pskusername", identity, "--pskkey",
                Self.hex(key), "--priority", Self.priority(version), "localhost",
            ], input: "NOOP over TLS\nQUIT\n")
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func clientsOfBothLibrariesUpgrade(_ version: TLSProtocolVersion, withGnuTLS: Bool) async throws {
        let server = try MiniSMTPServer(server(version))
        func run(_ identity: String, _ key: [UInt8]) async throws -> (status: Int32, printed: String) {
            let program =
                try withGnuTLS
                ? gnutlsClient(server.port, version, identity, key) : opensslClient(server.port, version, identity, key)
            return (await program.exitStatus(), program.printed)
        }
        let good = try await run("alice", Self.bytes)
        if withGnuTLS, version == .tls12 {
            // gnutls-cli 3.7.9 crashes when it prints such a session, even with its own server.
            try await eventually("there is a session") { server.sessions.count == 1 }
        } else {
            #expect(good.status == 0, "\(good.printed)")
            #expect(server.securedLines.contains("NOOP over TLS\r\n"))
        }
        expectKey(try #require(server.sessions.last), version)
        let wrong = try await run("alice", Self.otherBytes)
        let unknown = try await run("mallory", Self.bytes)
        #expect(wrong.status != 0 && unknown.status != 0 && server.sessions.count == 1)
        // Both look the same to the program.
        let alert = version == .tls13 ? "alert decrypt error" : "alert bad record mac"
        if !withGnuTLS { #expect(wrong.printed.contains(alert) && unknown.printed.contains(alert), "\(wrong.printed)") }
    }

    @Test(arguments: TLSProtocolVersion.tested) func aClientWithoutAKeyIsRefused(_ version: TLSProtocolVersion) async throws {
        let server = try MiniSMTPServer(server(version))
        let program = try Program(
            ["openssl", "s_client", "-connect", "127.0.0.1:\(server.port)", "-starttls", "smtp", "-quiet"], input: "QUIT\n")
        #expect(await program.exitStatus() != 0 && program.printed.contains("alert handshake failure"))
        #expect(server.sessions.isEmpty)
    }
}

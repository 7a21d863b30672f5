import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Third-party clients, and how many of their connections our servers resume.
@Suite(.timeLimit(.patient), .serialized) struct ResumingClientsTests {
    struct Client: Sendable, CustomTestStringConvertible {
        let name: String
        let versions: [TLSProtocolVersion]
        /// The number of connections with each version, the first of which has a full handshake.
        let count: Int
        /// A shell command, with PORT for the port and FOLDER for a folder with `roots.pem`.
        let command: String

        init(_ name: String, _ versions: [TLSProtocolVersion], connections count: Int, _ command: String) {
            (self.name, self.versions, self.count, self.command) = (name, versions, count, command)
        }

        var testDescription: String { name }
    }

    private static let gnutls = "gnutls-cli --insecure --no-ca-verification --port PORT --resume 127.0.0.1"
    private static let curl = "curl --silent --insecure --no-keepalive --header Connection:close"
    private static let urls = " https://127.0.0.1:PORT/a https://127.0.0.1:PORT/b https://127.0.0.1:PORT/c"

    /// Small programs that connect to the port four times with each version.
    private static let programs =
        #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined() + "/ResumingClients"
    private static let wolfSSL = "cc -o FOLDER/visit \(programs)/visit.c -lwolfssl && FOLDER/visit PORT"

    static let clients = [
        Client("OpenSSL, TLS 1.2", [.tls12], connections: 6, "openssl s_client -connect 127.0.0.1:PORT -tls1_2 -reconnect"),
        Client(
            "OpenSSL, TLS 1.2 by identifier", [.tls12], connections: 6,
            "openssl s_client -connect 127.0.0.1:PORT -tls1_2 -no_ticket -reconnect"),
        Client("GnuTLS, TLS 1.2", [.tls12], connections: 2, gnutls + " --priority NORMAL:-VERS-ALL:+VERS-TLS1.2"),
        Client(
            "GnuTLS, TLS 1.2 by identifier", [.tls12], connections: 2,
            gnutls + " --priority NORMAL:-VERS-ALL:+VERS-TLS1.2:%NO_TICKETS"),
        Client(
            "GnuTLS, TLS 1.3", [.tls13], connections: 2,
            gnutls + " --waitresumption --priority NORMAL:-VERS-ALL:+VERS-TLS1.3"),
        Client("curl, TLS 1.2", [.tls12], connections: 3, curl + " --tls-max 1.2" + urls),
        Client("curl, TLS 1.3", [.tls13], connections: 3, curl + " --tlsv1.3" + urls),
        Client("Python", TLSProtocolVersion.tested, connections: 4, "/usr/bin/python3 \(programs)/visit.py PORT"),
        Client("Java", TLSProtocolVersion.tested, connections: 4, "java \(programs)/Visit.java PORT"),
        Client("Go", TLSProtocolVersion.tested, connections: 4, "\(Program.go) run \(programs)/visit.go PORT"),
        Client("Erlang", TLSProtocolVersion.tested, connections: 4, "escript \(programs)/visit.escript PORT FOLDER/roots.pem"),
        Client("wolfSSL, TLS 1.2", [.tls12], connections: 4, "\(wolfSSL) 1.2"),
        Client("wolfSSL, TLS 1.2 by identifier", [.tls12], connections: 4, "\(wolfSSL) 1.2-by-identifier"),
        Client("wolfSSL, TLS 1.3", [.tls13], connections: 4, "\(wolfSSL) 1.3"),
    ]

    @Test(arguments: clients) func aClientResumes(_ client: Client) async throws {
        let folder = try TemporaryFolder()
        _ = try folder.write(TestCertificates.authority.rootPEM, to: "roots.pem")
        let resumed = Locked([TLSProtocolVersion: [Bool]]())
        // The first connection has no session to resume.
        let expected = [false] + Array(repeating: true, count: client.count - 1)
        try await withServer { socket in
            if let session = socket.tlsSession {
                resumed.withLock { $0[session.protocolVersion, default: []].append(session.isResumed) }
            }
            guard try await socket.readLine()?.isEmpty == false else { return }
            while try await socket.readLine()?.isEmpty == false {}
            try await socket.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        } during: { port in
            let line = client.command.replacing("PORT", with: "\(port)").replacing("FOLDER", with: folder.path)
            let program = try Program(["sh", "-c", line], input: client.name.hasPrefix("GnuTLS") ? "GET / HTTP/1.0\r\n\r\n" : "")
            _ = await program.exitStatus()
            // The last message of a resumed handshake is the client's, so it may complete before the server
            // knows.
            try await eventually("the last one is served") {
                client.versions.allSatisfy { resumed.withLock { $0 }[$0]?.count == client.count }
            }
            // Only the number of full handshakes: the tasks of two connections may start in either order.
            #expect(
                resumed.withLock { $0.mapValues { $0.sorted { !$0 && $1 } } }
                    == Dictionary(uniqueKeysWithValues: client.versions.map { ($0, expected) }),
                "\(program.printed.suffix(1500))")
        }
    }

    /// The client waits for its ticket before it sends anything, and then for the end of its input.
    @Test func aClientThatWaitsForItsTicketMeetsASilentServer() async throws {
        let resumed = Locked([Bool]())
        try await withServer { socket in
            resumed.withLock { $0.append(socket.tlsSession?.isResumed == true) }
            _ = try await socket.readToEnd()
        } during: { port in
            let line = Self.gnutls + " --waitresumption --priority NORMAL:-VERS-ALL:+VERS-TLS1.3"
            let program = try Program(["sh", "-c", line.replacing("PORT", with: "\(port)")], input: "hello\n")
            #expect(await program.exitStatus() == 0, "\(program.printed.suffix(1500))")
            #expect(resumed.withLock { $0 } == [false, true])
        }
    }

    private func withServer(
        _ serve: @escaping @Sendable (AsyncSocket) async throws -> Void, during body: (UInt16) async throws -> Void
    ) async throws {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(2)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        try await withThrowingTaskGroup { group in
            group.addTask { try await listener.run { try await serve($0) } }
            try await body(listener.localPort)
            await listener.close(timeout: .zero)
            try await group.waitForAll()
        }
    }
}

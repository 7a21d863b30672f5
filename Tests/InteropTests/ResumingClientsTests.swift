import AsyncSockets
import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import Testing

/// Clients that others wrote, and how many of their connections our servers resume.
@Suite(.timeLimit(.minutes(20)), .serialized) struct ResumingClientsTests {
    struct Client: Sendable, CustomTestStringConvertible {
        let name: String
        /// With PORT for the port.
        let command: [String]
        /// The connections, of which the first one has a full handshake.
        let count: Int

        init(_ name: String, connections count: Int, _ command: String) {
            (self.name, self.count) = (name, count)
            self.command = command.split(separator: " ").map(String.init)
        }

        var testDescription: String { name }
    }

    private static let gnutls = "gnutls-cli --insecure --no-ca-verification --port PORT --resume 127.0.0.1"
    private static let curl = "curl --silent --insecure --no-keepalive --header Connection:close"
    private static let urls = " https://127.0.0.1:PORT/a https://127.0.0.1:PORT/b https://127.0.0.1:PORT/c"

    static let clients = [
        Client("OpenSSL, TLS 1.2", connections: 6, "openssl s_client -connect 127.0.0.1:PORT -tls1_2 -reconnect"),
        Client(
            "OpenSSL, TLS 1.2 by identifier", connections: 6,
            "openssl s_client -connect 127.0.0.1:PORT -tls1_2 -no_ticket -reconnect"),
        Client("GnuTLS, TLS 1.2", connections: 2, gnutls + " --priority NORMAL:-VERS-ALL:+VERS-TLS1.2"),
        Client(
            "GnuTLS, TLS 1.2 by identifier", connections: 2,
            gnutls + " --priority NORMAL:-VERS-ALL:+VERS-TLS1.2:%NO_TICKETS"),
        Client("GnuTLS, TLS 1.3", connections: 2, gnutls + " --waitresumption --priority NORMAL:-VERS-ALL:+VERS-TLS1.3"),
        Client("curl, TLS 1.2", connections: 3, curl + " --tls-max 1.2" + urls),
        Client("curl, TLS 1.3", connections: 3, curl + " --tlsv1.3" + urls),
    ]

    @Test(arguments: clients) func aClientResumes(_ client: Client) async throws {
        var settings = try TestCertificates.server()
        settings.sessionTicketCount = 2
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        let resumed = Locked([Bool]())
        try await withThrowingTaskGroup { group in
            group.addTask {
                try await listener.run { socket in
                    resumed.withLock { $0.append(socket.tlsSession?.isResumed == true) }
                    guard try await socket.readLine()?.isEmpty == false else { return }
                    while try await socket.readLine()?.isEmpty == false {}
                    try await socket.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
                }
            }
            let command = client.command.map { $0.replacing("PORT", with: "\(listener.localPort)") }
            let program = try Program(command, input: client.name.hasPrefix("GnuTLS") ? "GET / HTTP/1.0\r\n\r\n" : "")
            _ = await program.exitStatus()
            #expect(
                resumed.withLock { $0 } == [false] + Array(repeating: true, count: client.count - 1),
                "\(program.printed.suffix(1500))")
            await listener.shutdown(within: .zero)
            try await group.waitForAll()
        }
    }
}

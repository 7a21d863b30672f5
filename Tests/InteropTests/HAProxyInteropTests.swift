import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// The PROXY protocol with HAProxy, its reference implementation.
@Suite(.timeLimit(.patient), .serialized) struct HAProxyInteropTests {
    /// HAProxy in front of one of our listeners.
    private struct Front {
        let program: Program
        /// The ports on which HAProxy sends a version 1 or 2 header for each connection.
        let version1, version2: UInt16
        /// The port on which HAProxy accepts a header and forwards it.
        let accepting: UInt16
        private let folder: TemporaryFolder

        init(of listener: SocketListener) async throws {
            folder = try TemporaryFolder()
            let ports = try (0..<3).map { _ in try Loopback.freePort() }
            (version1, version2, accepting) = (ports[0], ports[1], ports[2])
            let server = "server ours 127.0.0.1:\(listener.localPort)"
            let configuration = """
                defaults
                  mode tcp
                  timeout connect 60s
                  timeout client 60s
                  timeout server 60s
                listen version1
                  bind 127.0.0.1:\(version1)
                  \(server) send-proxy
                listen version2
                  bind 127.0.0.1:\(version2)
                  \(server) send-proxy-v2 proxy-v2-options unique-id,crc32c check inter 100
                  unique-id-format connection-%pid
                listen accepting
                  bind 127.0.0.1:\(accepting) accept-proxy
                  \(server) send-proxy-v2

                """
            program = try Program(["haproxy", "-db", "-f", folder.write(configuration, to: "haproxy.cfg")])
            let (socket, _) = try await Loopback.connect(to: accepting, of: program)
            socket.disconnect()
        }
    }

    /// Runs a listener behind HAProxy that sends the client's address and echoes.
    private func behindHAProxy(isSecure: Bool, _ test: @Sendable (Front) async throws -> Void) async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil,
            proxyProtocol: .required(from: try .addresses(["127.0.0.0/8"]), timeout: .patient))
        try await withThrowingTaskGroup { group in
            group.addTask {
                try await listener.run { socket in
                    try await socket.write(
                        "\(socket.originalAddress?.description ?? "") \(socket.proxyHeader?.isLocal ?? true)\n")
                    for try await bytes in socket.chunks { try await socket.write(bytes) }
                }
            }
            let front = try await Front(of: listener)
            defer { front.program.stop() }
            try await test(front)
            await listener.close(timeout: .zero)
            try await group.waitForAll()
        }
    }

    @Test(arguments: [false, true])
    func theHeadersOfHAProxyAreUnderstood(isSecure: Bool) async throws {
        try await behindHAProxy(isSecure: isSecure) { front in
            for port in [front.version1, front.version2, front.version2] {
                let socket = AsyncSocket()
                try await socket.connect(to: "127.0.0.1", port: port, tls: isSecure ? TestCertificates.client() : nil)
                let address = try #require(socket.localAddress)
                #expect(try await socket.readLine() == "\(address) false", "\(front.program.printed)")
                let bytes = pattern(1_000_000)
                async let echo = socket.read(exactly: bytes.count)
                try await socket.write(bytes)
                #expect(try await echo == bytes)
                try await socket.close()
            }
        }
    }

    @Test(arguments: [ProxyHeader.Version.version1, .version2], [false, true])
    func haproxyUnderstandsOurHeaders(_ version: ProxyHeader.Version, isSecure: Bool) async throws {
        try await behindHAProxy(isSecure: isSecure) { front in
            for (source, destination) in [("192.0.2.7", "198.51.100.1"), ("2001:db8::7", "2001:db8::1")] {
                let source = try #require(SocketEndpoint(literal: source, port: 4711))
                let destination = try #require(SocketEndpoint(literal: destination, port: 443))
                let socket = AsyncSocket()
                try await socket.connect(to: "127.0.0.1", port: front.accepting)
                try await socket.write(ProxyHeader(source: source, destination: destination), as: version)
                if isSecure { try await socket.startTLS(settings: TestCertificates.client()) }
                #expect(try await socket.readLine() == "\(source) false", "\(front.program.printed)")
                try await socket.close()
            }
        }
    }
}

import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// Messages about failures start with the side that failed and its address.
@Suite(.timeLimit(.minutes(5))) struct RelayFailureTests {
    private let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        try folder.issue(.server(names: ["localhost"]), by: CertificateAuthority(), to: "server")
    }

    /// Connects a client, sends `input`, and returns the first line that the relay prints about the failure,
    /// without the client's address.
    private func line(_ options: String, input: String = "") async throws -> String {
        let relay = try await SockcatServer("relay --listen 127.0.0.1:0 \(options)", in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: relay.port)
        let address = "127.0.0.1:\(client.localPort)"
        if !input.isEmpty { try await client.write(input) }
        let line = try await relay.line(containing: address)
        client.disconnect()
        await relay.stop()
        return line.replacingOccurrences(of: address, with: "CLIENT")
    }

    // MARK: - The target

    @Test func aTargetThatRefusesIsNamed() async throws {
        #expect(try await line("--to 127.0.0.1:1").hasPrefix("target 127.0.0.1:1 (client CLIENT): connect: "))
    }

    @Test func aTargetWithoutAnAddressIsNamed() async throws {
        // The resolver rejects a label of 64 bytes without a query.
        let host = String(repeating: "a", count: 64) + ".example"
        #expect(try await line("--to \(host):1").hasPrefix("target \(host):1 (client CLIENT): resolve: "))
    }

    @Test func aTargetOnAUnixSocketIsNamed() async throws {
        #expect(try await line("--to unix:\(folder.path("no"))").hasPrefix("target unix:\(folder.path("no")) (client CLIENT): "))
    }

    @Test func aTargetThatIsNotTrustedIsNamed() async throws {
        let target = try await SockcatServer("listen --echo --tls --cert server.pem --key server.key 127.0.0.1:0", in: folder)
        let text = try await line("--to localhost:\(target.port) --to-tls")
        #expect(text.hasPrefix("target localhost:\(target.port) at 127.0.0.1:\(target.port) (client CLIENT): TLS: "))
        await target.stop()
    }

    @Test func aTargetWithoutTLSIsNamed() async throws {
        let target = try LocalServer { try await $0.write("220 ready\r\n") }
        let text = try await line("--to 127.0.0.1:\(target.port) --to-tls")
        #expect(text.hasPrefix("target 127.0.0.1:\(target.port) (client CLIENT): TLS: "))
    }

    @Test func aTargetThatRefusesTheUpgradeIsNamed() async throws {
        let target = try LocalServer { try await $0.write("554 no service\r\n") }
        let text = try await line("--to 127.0.0.1:\(target.port) --to-starttls smtp")
        #expect(text.hasPrefix("target 127.0.0.1:\(target.port) (client CLIENT): TLS: "))
    }

    @Test func aTargetThatIsSilentIsNamed() async throws {
        let target = try LocalServer { _ = try await $0.readToEnd() }
        let text = try await line("--to 127.0.0.1:\(target.port) --to-starttls smtp --timeout 200ms")
        #expect(text.hasPrefix("target 127.0.0.1:\(target.port) (client CLIENT): TLS: "))
        #expect(text.hasSuffix("timed out after 200ms (--timeout)"))
    }

    @Test func aTargetThatResetsTheConnectionIsNamed() async throws {
        let target = try LocalServer { socket in
            _ = try await socket.read()
            try socket.setOption(.linger, to: .zero)
            socket.disconnect()
        }
        let text = try await line("--to 127.0.0.1:\(target.port)", input: "hello")
        #expect(text.hasPrefix("target 127.0.0.1:\(target.port) (client CLIENT): read: "))
    }

    // MARK: - The proxy

    @Test func aProxyThatRefusesConnectionsIsNamed() async throws {
        let text = try await line("--to target.example:443 --to-proxy http://127.0.0.1:1")
        #expect(text.hasPrefix("proxy 127.0.0.1:1 (target target.example:443, client CLIENT): connect: "))
    }

    @Test(arguments: ["HTTP/1.1 403 Forbidden\r\n\r\n", "HTTP/1.1 407 Login\r\n\r\n", "SSH-2.0\r\n\r\n", ""])
    func aProxyThatRefusesTheTargetIsNamed(reply: String) async throws {
        let proxy = try LocalServer { socket in
            _ = try await socket.read(until: Data("\r\n\r\n".utf8))
            try await socket.write(reply)
        }
        let text = try await line("--to target.example:443 --to-proxy http://127.0.0.1:\(proxy.port)")
        #expect(text.hasPrefix("proxy 127.0.0.1:\(proxy.port) (target target.example:443, client CLIENT): connect: "))
    }

    @Test func aProxyThatIsSilentIsNamed() async throws {
        let proxy = try LocalServer { _ = try await $0.readToEnd() }
        let text = try await line("--to target.example:443 --to-proxy socks5://127.0.0.1:\(proxy.port) --timeout 200ms")
        #expect(text.hasPrefix("proxy 127.0.0.1:\(proxy.port) (target target.example:443, client CLIENT): connect: "))
    }

    @Test func aTargetBehindAProxyIsNamed() async throws {
        let proxy = try LocalServer { socket in
            _ = try await socket.read(until: Data("\r\n\r\n".utf8))
            try await socket.write("HTTP/1.1 200 OK\r\n\r\n554 no service\r\n")
            _ = try await socket.readToEnd()
        }
        let text = try await line("--to target.example:25 --to-starttls smtp --to-proxy http://127.0.0.1:\(proxy.port)")
        #expect(text.hasPrefix("target target.example:25 (client CLIENT): TLS: "))
    }

    // MARK: - The client

    @Test(arguments: ["--listen-tls", "--listen-starttls smtp"]) func aClientWithoutTLSIsNamed(option: String) async throws {
        let text = try await line(
            "\(option) --cert server.pem --key server.key --to 127.0.0.1:1", input: "QUIT\r\nhello, this is not TLS\r\n")
        #expect(text.hasPrefix("client CLIENT: "))
    }

    @Test func aClientWithoutAHeaderIsNamed() async throws {
        #expect(try await line("--proxy-in any --to 127.0.0.1:1", input: "hello\r\n").hasPrefix("client CLIENT: "))
    }

    @Test func aClientWithoutARouteIsNamed() async throws {
        let text = try await line("--route a.example=127.0.0.1:1", input: "this is not TLS\r\n")
        #expect(text.hasPrefix("client CLIENT: "))
    }

    @Test func aClientThatResetsTheConnectionIsNamed() async throws {
        let target = try LocalServer { socket in
            try await socket.write("ready\n")
            _ = try await socket.readToEnd()
        }
        let relay = try await SockcatServer("relay --listen 127.0.0.1:0 --to 127.0.0.1:\(target.port)", in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: relay.port)
        let address = "127.0.0.1:\(client.localPort)"
        #expect(try await client.readLine() == "ready")
        try client.setOption(.linger, to: .zero)
        client.disconnect()
        #expect(try await relay.line(containing: address).hasPrefix("client \(address): read: "))
        await relay.stop()
    }

    @Test func bothSidesOfAnIdleConnectionAreNamed() async throws {
        let target = try LocalServer { _ = try await $0.readToEnd() }
        let text = try await line("--to 127.0.0.1:\(target.port) --idle-timeout 200ms")
        #expect(text.hasPrefix("client CLIENT and target 127.0.0.1:\(target.port): "))
    }
}

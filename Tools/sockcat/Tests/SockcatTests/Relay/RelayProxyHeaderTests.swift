import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

/// Every header that a relay accepts reaches the target in every version that the relay can send.
@Suite(.timeLimit(.minutes(5))) struct RelayProxyHeaderTests {
    struct Case: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let header: ProxyHeader
        let accepted: [ProxyHeader.Version]
        /// The line that a target of version 1 receives.
        let line: String

        init(_ name: String, _ header: ProxyHeader, in accepted: [ProxyHeader.Version] = [.version2], _ line: String) {
            (testDescription, self.header, self.accepted, self.line) = (name, header, accepted, line)
        }
    }

    private static let ipv4 = (SocketEndpoint(literal: "192.0.2.1", port: 4000), SocketEndpoint(literal: "192.0.2.2", port: 25))
    private static let ipv6 = (
        SocketEndpoint(literal: "2001:db8::1", port: 4000), SocketEndpoint(literal: "2001:db8::2", port: 25)
    )
    private static let unix = (SocketEndpoint(unixPath: "/run/client"), SocketEndpoint(unixPath: "/run/server"))

    private static func header(
        _ addresses: (SocketEndpoint?, SocketEndpoint?), _ transport: ProxyHeader.Transport = .stream,
        _ change: (inout ProxyHeader) -> Void = { _ in }
    ) throws -> ProxyHeader {
        var header = ProxyHeader(
            source: try #require(addresses.0), destination: try #require(addresses.1), transport: transport)
        change(&header)
        return header
    }

    static func cases() throws -> [Case] {
        let line4 = "PROXY TCP4 192.0.2.1 192.0.2.2 4000 25", line6 = "PROXY TCP6 2001:db8::1 2001:db8::2 4000 25"
        let unknown = "PROXY UNKNOWN"
        return [
            Case("TCP over IPv4", try header(ipv4), in: [.version1, .version2], line4),
            Case("TCP over IPv6", try header(ipv6), in: [.version1, .version2], line6),
            Case("unknown", .unknown, in: [.version1, .version2], unknown),
            Case("local", .local, unknown),
            Case("UDP over IPv4", try header(ipv4, .datagram), unknown),
            Case("UDP over IPv6", try header(ipv6, .datagram), unknown),
            Case("Unix stream", try header(unix), unknown),
            Case("Unix datagrams", try header(unix, .datagram), unknown),
            Case("ALPN", try header(ipv4) { $0.applicationProtocol = Array("h2".utf8) }, line4),
            Case("server name", try header(ipv6) { $0.authority = "a.example" }, line6),
            Case("unique ID", try header(ipv4) { $0.uniqueID = [1, 2, 3] }, line4),
            Case("checksum", try header(ipv4) { $0.hasChecksum = true }, line4),
            Case("network namespace", try header(ipv4) { $0.networkNamespace = "blue" }, line4),
            Case("client TLS", try header(ipv4) { $0.clientTLS = .init(flags: .usesTLS, verifyResult: 0) }, line4),
            Case("other field", try header(ipv4) { $0.otherFields = [.init(type: 0xE0, value: [7])] }, line4),
            Case("Unix stream with a field", try header(unix) { $0.authority = "a.example" }, unknown),
        ]
    }

    private let folder: TestFolder

    init() throws { folder = try TestFolder() }

    /// Sends a header in each version that can represent it, and returns what the target received.
    private func received(
        _ example: Case, as version: Int, by read: @escaping @Sendable (AsyncSocket) async throws -> String,
        _ expectation: SocketListener.ProxyProtocol? = nil
    ) async throws -> Set<String> {
        let target = try LocalServer(proxyProtocol: expectation) { socket in
            let header = try await read(socket)
            try await socket.writeLine("\(header), then \(try await socket.readLine() ?? "nothing")")
        }
        let relay = try await SockcatServer(
            "relay --listen 127.0.0.1:0 --proxy-in any --proxy-out \(version) --to 127.0.0.1:\(target.port)", in: folder)
        var lines: Set<String> = []
        for accepted in example.accepted {
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: relay.port)
            try await client.write(example.header, as: accepted)
            try await client.writeLine("data")
            lines.insert((try? await client.readLine()) ?? "nothing")
            client.disconnect()
        }
        await relay.stop()
        return lines
    }

    @Test(arguments: try cases()) func version1SendsWhatItCanDescribe(example: Case) async throws {
        let lines = try await received(example, as: 1) { try await $0.readLine() ?? "nothing" }
        #expect(lines == ["\(example.line), then data"])
    }

    @Test(arguments: try cases()) func version2SendsTheWholeHeader(example: Case) async throws {
        let lines = try await received(
            example, as: 2, by: { $0.proxyHeader == example.header ? "equal" : "\(String(describing: $0.proxyHeader))" },
            .required(from: .anyone))
        #expect(lines == ["equal, then data"])
    }

    /// A client on a Unix-domain socket has no TCP address.
    @Test(arguments: [1, 2]) func aUnixClientReachesTheTarget(version: Int) async throws {
        let target = try LocalServer(proxyProtocol: .required(from: .anyone)) { socket in
            try await socket.writeLine(socket.proxyHeader?.destination?.unixPath ?? "unknown")
        }
        let path = folder.path("socket")
        let relay = try await SockcatServer(
            "relay --listen unix:\(path) --proxy-out \(version) --to 127.0.0.1:\(target.port)", in: folder)
        let client = AsyncSocket()
        try await client.connect(toPath: path)
        #expect(try await client.readLine() == (version == 1 ? "unknown" : path))
        client.disconnect()
        await relay.stop()
    }
}

import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Connections that are forwarded by server name, without ending TLS.
@Suite(.timeLimit(.patient)) struct ServerNameRoutingTests {
    /// The records that OpenSSL sends first.
    private func hello(for name: String, protocols: [String] = []) async throws -> Data {
        var settings = try TestCertificates.client(for: name)
        settings.applicationProtocols = protocols
        let listener = try RawSocket.listening()
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        let upgrade = Task { [settings] in try await client.startTLS(settings: settings) }
        let server = try AsyncSocket(adopting: listener.accepted().duplicate())
        let start = try await server.peek(exactly: 5)
        let bytes = try await server.read(exactly: 5 + Int(start[3]) << 8 + Int(start[4]))
        server.disconnect()
        #expect(await upgrade.outcome != .served)
        return bytes
    }

    @Test func aHelloIsParsedAsSoonAsItIsComplete() async throws {
        let bytes = try await hello(for: "b.example", protocols: ["h2", "http/1.1"])
        for count in 0..<bytes.count { #expect(try TLSClientHello(records: bytes.prefix(count).bytes) == nil) }
        for rest in [Data(), Data([23, 3, 3, 0, 1, 7])] {
            let hello = try #require(try TLSClientHello(records: (bytes + rest).bytes))
            #expect(hello.serverName == "b.example")
            #expect(hello.applicationProtocols == ["h2", "http/1.1"])
        }
    }

    /// A message that is split into many records is parsed, but not into any number of them.
    @Test func aHelloMayBeSplitIntoRecords() async throws {
        let bytes = try await hello(for: "b.example")
        let message = bytes.dropFirst(5)
        func split(_ count: Int) -> Data {
            var (records, rest) = (Data(), message)
            for left in (1...count).reversed() {
                let length = left == 1 ? rest.count : rest.count / left
                records += [22, 3, 1, UInt8(length >> 8), UInt8(length & 255)] + rest.prefix(length)
                rest = rest.dropFirst(length)
            }
            return records
        }
        for count in [2, 64] {
            #expect(try TLSClientHello(records: split(count).bytes)?.serverName == "b.example")
        }
        let error = #expect(throws: TLSError.self) { try TLSClientHello(records: split(65).bytes) }
        #expect(error?.code == .protocolViolation)
        #expect(error?.message == "the ClientHello is malformed or too long")
        #expect(error?.fault == .peer)
    }

    /// OpenSSL splits a message of more than 16 KiB into several records.
    @Test func aHelloThatIsLongerThanARecordIsForwardedWhole() async throws {
        var settings = try TestCertificates.client(for: "b.example")
        settings.applicationProtocols = (100..<200).map { "\($0)" + String(repeating: "x", count: 200) }
        let pair = try await SocketPair()
        let upgrade = Task { [settings] in try await pair.client.startTLS(settings: settings) }
        let start = try #require(try await pair.server.readFrame(TLSClientHelloFraming(), timeout: .patient))
        #expect(start.hello.serverName == "b.example")
        #expect(start.hello.applicationProtocols == settings.applicationProtocols)
        #expect(start.bytes.count > 5 + 1 << 14)
        // The same records, once more.
        #expect(try Self.read(start.bytes) == start.hello)
        pair.server.disconnect()
        #expect(await upgrade.outcome != .served)
    }

    /// A client may send more records in the segment with its message, for example early data.
    @Test func theBytesAfterAHelloAreForwardedOnce() async throws {
        let bytes = try await hello(for: "b.example")
        let all = bytes + Data([20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 1, 7])
        let pair = try await SocketPair()
        try await pair.client.write(all)
        pair.client.closeWriteStream()
        _ = try await pair.server.peek(exactly: all.count)
        let start = try #require(try await pair.server.readFrame(TLSClientHelloFraming()))
        #expect(start.bytes == bytes)
        #expect(try await start.bytes + pair.server.readToEnd() == all)
    }

    private static func read(_ records: Data) throws -> TLSClientHello? { try TLSClientHello(records: records.bytes) }

    @Test func plaintextIsNotAHello() throws {
        for text in ["GET / HTTP/1.1\r\n", "\u{16}\u{4}\u{1}\u{0}\u{5}", "\u{15}\u{3}\u{1}"] {
            let error = #expect(throws: TLSError.self) { try TLSClientHello(records: Data(text.utf8).bytes) }
            #expect(error?.code == .notTLS)
            #expect(error?.message == "the client did not start a TLS handshake")
        }
    }

    /// Each byte takes every value that differs in one bit: the result is a hello, an error or "incomplete",
    /// and the framing never takes more than it has.
    @Test func changedBytesAreNeverMoreThanAnError() async throws {
        var bytes = try await hello(for: "b.example", protocols: ["h2"])
        var outcomes = (hellos: 0, errors: 0, incomplete: 0)
        for index in bytes.indices {
            for bit in 0..<8 {
                bytes[index] ^= 1 << bit
                defer { bytes[index] ^= 1 << bit }
                do throws(AsyncSocketError) {
                    switch try TLSClientHelloFraming().decode(bytes.bytes) {
                    case .frame(let frame, let length):
                        #expect(frame.bytes == bytes.prefix(length))
                        outcomes.hellos += 1
                    case .incomplete(let minimum):
                        #expect(minimum > bytes.count)
                        outcomes.incomplete += 1
                    }
                } catch {
                    #expect(error.code == .tls)
                    outcomes.errors += 1
                }
            }
        }
        #expect(outcomes.hellos > 0 && outcomes.errors > 0 && outcomes.incomplete > 0)
    }

    /// The client's bytes arrive at the router one at a time. Each server proves its own name.
    @Test func aRouterForwardsByName() async throws {
        let router = try SocketListener(port: 0, interface: "127.0.0.1")
        let servers = try ["a.example", "b.example"].map {
            ($0, try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server(for: [$0])))
        }
        let ports = Dictionary(uniqueKeysWithValues: servers.map { ($0.0, $0.1.localPort) })
        let serving = Task {
            try await withThrowingDiscardingTaskGroup { group in
                for (name, server) in servers {
                    group.addTask {
                        try await server.run { socket in
                            try await socket.writeLine(name)
                            try await socket.echo()
                        }
                    }
                }
            }
        }
        let route: @Sendable (AsyncSocket) async throws -> Void = { client in
            guard let start = try await client.readFrame(TLSClientHelloFraming()),
                let port = ports[start.hello.serverName ?? ""]
            else { return }
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { server in
                try await server.write(start.bytes)
                try await client.relay(with: server)
            }
        }
        try await AsyncSocketsTests.serving(router, route) { _ in
            for name in ["b.example", "a.example"] {
                let slow = try TamperingRelay(toPort: router.localPort, fromClient: [.pieces(of: 1)], timeout: .patient)
                let client = AsyncSocket()
                try await client.connect(to: "127.0.0.1", port: slow.port)
                try await client.startTLS(settings: TestCertificates.client(for: name))
                #expect(try await client.readLine() == name)
                try await client.writeLine("hello")
                #expect(try await client.readLine() == "hello")
                try await client.close()
                slow.stop()
            }
            // A client that requests another name is not forwarded.
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: router.localPort)
            let error = await #expect(throws: AsyncSocketError.self) {
                try await client.startTLS(settings: TestCertificates.client(for: "c.example"))
            }
            #expect(error?.tls?.code == .closedDuringHandshake)
        }
        for (_, server) in servers { await server.close(timeout: .zero) }
        try await serving.value
    }
}

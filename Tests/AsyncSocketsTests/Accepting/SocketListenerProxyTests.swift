import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Connections forwarded by a proxy that sends a PROXY header.
@Suite(.timeLimit(.patient)) struct SocketListenerProxyTests {
    private static func listener(
        _ proxyProtocol: SocketListener.ProxyProtocol = .required(from: .anyone, timeout: .patient),
        isSecure: Bool = false
    ) throws -> SocketListener {
        var settings = try TestCertificates.server()
        // A listener's TLS connections have no plaintext phase, so a ClientHello that arrives with the header
        // starts the handshake.
        settings.earlyPlaintext = .reject
        return try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? settings : nil, proxyProtocol: proxyProtocol)
    }

    private static func header() throws -> ProxyHeader {
        let source = try #require(SocketEndpoint(literal: "192.0.2.7", port: 4711))
        let destination = try #require(SocketEndpoint(literal: "198.51.100.1", port: 443))
        return ProxyHeader(source: source, destination: destination)
    }

    /// Sends the client's address, then echoes.
    @Sendable private static func serve(_ socket: AsyncSocket) async throws {
        let address = socket.originalAddress.map { "\($0)" } ?? "unknown"
        try await socket.write("\(address) \(socket.proxyHeader != nil) \(socket.isSecure)\n")
        try await socket.echo()
    }

    @Test(arguments: [ProxyHeader.Version.version1, .version2], [false, true])
    func theSocketKnowsItsClient(_ version: ProxyHeader.Version, isSecure: Bool) async throws {
        let listener = try Self.listener(isSecure: isSecure)
        try await serving(listener, Self.serve) { _ in
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            try await client.write(try Self.header(), as: version)
            if isSecure { try await client.startTLS(settings: .ofTests()) }
            #expect(try await client.readLine() == "192.0.2.7:4711 true \(isSecure)")
            #expect(client.proxyHeader == nil && client.originalAddress?.port == listener.localPort)
            try await client.write("hello\n")
            #expect(try await client.readLine() == "hello")
            try await client.close()
        }
    }

    @Test(arguments: [ProxyHeader.Version.version1, .version2])
    func whatFollowsInTheSameSegmentIsData(_ version: ProxyHeader.Version) async throws {
        let listener = try Self.listener()
        try await serving(listener, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(try Self.header().encoded(as: version) + Array("PROXY hello\n".utf8))
            #expect(try client.receive(through: "hello\n") == "192.0.2.7:4711 true false\nPROXY hello\n")
        }
    }

    @Test(arguments: [ProxyHeader.Version.version1, .version2])
    func aClientHelloInTheSameSegmentStartsTLS(_ version: ProxyHeader.Version) async throws {
        let listener = try Self.listener(isSecure: true)
        try await serving(listener, Self.serve) { _ in
            let proxy = try SocketListener(port: 0, interface: "127.0.0.1")
            let target = try #require(listener.localAddress)
            try await serving(proxy, { try await Self.passOn($0, to: target, version) }) { _ in
                let client = AsyncSocket()
                try await client.connect(to: "127.0.0.1", port: proxy.localPort, tls: .ofTests())
                #expect(try await client.readLine() == "192.0.2.7:4711 true true")
                try await client.close()
            }
        }
    }

    /// A proxy that sends the header and the client's first bytes in one write.
    @Sendable private static func passOn(
        _ client: AsyncSocket, to target: SocketEndpoint, _ version: ProxyHeader.Version
    ) async throws {
        try await AsyncSocket.withConnection(to: target) { server in
            let first = try await client.read() ?? Data()
            try await server.write(Data(header().encoded(as: version)) + first)
            async let back: Void = {
                for try await bytes in server.chunks { try await client.write(bytes) }
                client.closeWriteStream()
            }()
            for try await bytes in client.chunks { try await server.write(bytes) }
            server.closeWriteStream()
            try await back
        }
    }

    @Test(arguments: [ProxyHeader.Version.version1, .version2])
    func aHeaderMayComeByteByByte(_ version: ProxyHeader.Version) async throws {
        let listener = try Self.listener()
        try await serving(listener, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            for byte in try Self.header().encoded(as: version) + Array("hello\n".utf8) { try client.send([byte]) }
            #expect(try client.receive(through: "hello\n") == "192.0.2.7:4711 true false\nhello\n")
        }
    }

    @Test(arguments: [ProxyHeader.Version.version1, .version2])
    func aHealthCheckOfTheProxyHasItsRealAddress(_ version: ProxyHeader.Version) async throws {
        let listener = try Self.listener()
        try await serving(listener, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(try ProxyHeader.local.encoded(as: version))
            #expect(try client.receive(through: "\n") == "\(try client.localAddress) true false\n")
        }
    }

    /// According to the specification, a receiver that does not support the transport uses the real address.
    @Test func theSourceOfDatagramsIsNotTheClient() async throws {
        let listener = try Self.listener()
        let stream = try Self.header()
        let (source, destination) = (try #require(stream.source), try #require(stream.destination))
        try await serving(listener, Self.serve) { _ in
            for header in [ProxyHeader(source: source, destination: destination, transport: .datagram), .unknown, stream] {
                let client = try RawSocket.connected(to: try #require(listener.localAddress))
                try client.send(try header.encoded(as: .version2))
                let address = header == stream ? "192.0.2.7:4711" : "\(try client.localAddress)"
                #expect(try client.receive(through: "\n") == "\(address) true false\n")
            }
        }
    }

    // MARK: - Invalid headers

    /// The bytes received instead of a header, and a word in the error.
    private static let faults: [(bytes: [UInt8], word: String)] = [
        (Array("GET / HTTP/1.1\r\n\r\n".utf8), "valid"), ([0x16, 0x03, 0x01], "valid"),
        (Array("PROXY TCP4 192.0.2.7 nowhere 1 2\r\n".utf8), "valid"), ([], "closed"), (Array("PROXY TCP4 192".utf8), "closed"),
    ]

    @Test(arguments: 0..<5)
    func aConnectionWithoutAValidHeaderEnds(_ index: Int) async throws {
        let (bytes, word) = Self.faults[index]
        let listener = try Self.listener()
        let (errors, bodies, ends) = (Findings<AsyncSocketError?>(), Findings<Bool>(), Findings<Bool>())
        try await serving(
            listener,
            onError: { error, socket in
                ends.add(socket.isDisconnected)
                errors.add(error as? AsyncSocketError)
            }, { _ in bodies.add(true) }
        ) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(bytes)
            client.finish()
            _ = try? client.receiveAll()
            try await eventually("the error is known") { !errors.all.isEmpty }
        }
        let error = try #require(errors.all.first ?? nil)
        #expect(error.code == .proxyFailed && error.fault == .peer)
        #expect(error.message.contains(word), "\(error.message)")
        #expect(bodies.all.isEmpty && ends.all == [true])
    }

    @Test(arguments: ["", "PROXY TCP4 192"])
    func aHeaderHasItsTimeAndNoMore(_ beginning: String) async throws {
        let listener = try Self.listener(.required(from: .anyone, timeout: .milliseconds(50)), isSecure: true)
        let errors = Findings<String>()
        var attempts = 0
        try await serving(listener, onError: { error, _ in errors.add("\(error)") }, Self.serve) { _ in
            var received: String?
            while received == nil, attempts < 30 {
                attempts += 1
                let client = try RawSocket.connected(to: try #require(listener.localAddress), waitLimit: .patient)
                // On a busy machine, the connection may be reset before its header is sent. Then try again.
                if (try? client.send(beginning)) != nil { received = try? client.receiveAll() }
                try await eventually("the error is known") { errors.all.count >= attempts }
            }
            #expect(received?.isEmpty == true)
        }
        #expect(errors.all.count == attempts)
        #expect(errors.all.allSatisfy { $0.contains("no complete PROXY header was received within 0.05 seconds") })
    }

    /// A version 2 header for IPv4 has 28 bytes.
    @Test(arguments: [(27, false), (28, true)])
    func aHeaderOfVersion2HasALimit(_ limit: Int, isServed: Bool) async throws {
        let listener = try Self.listener(
            .required(from: .anyone, timeout: .patient, maximumHeaderBytes: limit))
        let errors = Findings<AsyncSocketError.Code?>()
        try await serving(listener, onError: { error, _ in errors.add((error as? AsyncSocketError)?.code) }, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(try Self.header().encoded(as: .version2))
            if isServed {
                #expect(try client.receive(through: "\n") == "192.0.2.7:4711 true false\n")
            } else {
                #expect((try? client.receiveAll()) ?? "" == "")
                try await eventually("the error is known") { !errors.all.isEmpty }
            }
        }
        #expect(errors.all == (isServed ? [] : [.proxyFailed]))
    }

    // MARK: - Sources

    @Test func othersAreRefused() async throws {
        let listener = try Self.listener(
            .required(from: try .addresses(["192.0.2.0/24", "127.0.0.2", "unix:"]), timeout: .patient))
        let errors = Findings<String>()
        try await serving(listener, onError: { error, _ in errors.add("\(error)") }, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(try Self.header().encoded(as: .version1))
            #expect((try? client.receiveAll()) ?? "" == "")
            try await eventually("the error is known") { !errors.all.isEmpty }
        }
        #expect(errors.all[0].contains("not one of the proxies in sources"))
    }

    @Test func othersMayBeServedWithoutAHeader() async throws {
        let listener = try Self.listener(
            .required(from: try .addresses(["192.0.2.0/24"]), unlistedSources: .accept, timeout: .patient))
        try await serving(listener, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            // This source is not a trusted proxy, so the header is data.
            try client.send("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n")
            let text = try client.receive(through: "443\r\n")
            #expect(text == "\(try client.localAddress) false false\nPROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n")
        }
    }

    @Test(arguments: [["127.0.0.0/8"], ["::1", "127.0.0.1"], ["0.0.0.0/0"]])
    func aSourceIsKnownByItsAddress(_ sources: [String]) async throws {
        let listener = try Self.listener(.required(from: try .addresses(sources), timeout: .patient))
        try await serving(listener, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(try Self.header().encoded(as: .version2))
            #expect(try client.receive(through: "\n") == "192.0.2.7:4711 true false\n")
        }
    }

    @Test func peersOnAUnixSocketAreASourceToo() async throws {
        let folder = try TemporaryFolder()
        let listener = try SocketListener(
            path: folder.path("s"), proxyProtocol: .required(from: try .addresses(["unix:"]), timeout: .patient))
        try await serving(listener, Self.serve) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send(try Self.header().encoded(as: .version1))
            #expect(try client.receive(through: "\n") == "192.0.2.7:4711 true false\n")
        }
    }

    @Test(arguments: ["", "localhost", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10/8", "fe80::1%lo", "::/129", "::/-1"])
    func aSourceThatIsNoAddressThrows(_ text: String) {
        let error = #expect(throws: AsyncSocketError.self) {
            try SocketListener.ProxyProtocol.Sources.addresses([text])
        }
        #expect(error?.code == .badParameter)
    }

    // MARK: - Sequences and reused sockets

    @Test func theSequenceBringsSocketsWithTheirHeaders() async throws {
        let listener = try Self.listener()
        let address = try #require(listener.localAddress)
        let silent = try RawSocket.connected(to: address)
        let client = try RawSocket.connected(to: address)
        try client.send(try Self.header().encoded(as: .version2))
        for try await socket in listener.connections {
            #expect(socket.proxyHeader == (try Self.header()))
            // The header applies to only one connection.
            socket.userData = 1
            socket.disconnect()
            let other = try RawSocket.listening()
            try await socket.connect(to: try other.localAddress)
            #expect(socket.proxyHeader == nil && socket.userData as? Int == 1)
            break
        }
        await listener.close(timeout: .zero)
        _ = try? silent.receiveAll()
    }
}

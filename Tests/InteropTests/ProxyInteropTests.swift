import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Connections through third-party proxies.
@Suite(.timeLimit(.patient), .serialized) struct ProxyInteropTests {
    /// The proxies, with and without a password.
    private static let services: [(ProxyDaemon.Kind, Bool)] = [
        (.danted, false), (.microsocks, false), (.microsocks, true), (.tinyproxy, false), (.tinyproxy, true),
    ].filter(\.0.isPackaged)

    /// More than fits in the buffers along the way.
    private static let manyBytes = pattern(3_000_000)

    /// Returns a socket that connects through `daemon`.
    private func makeSocket(_ daemon: ProxyDaemon, _ credentials: SocketProxy.Credentials?) -> (AsyncSocket, Recorder) {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.proxy = daemon.proxy(credentials)
        return (socket, recorder)
    }

    @Test(arguments: services, ["127.0.0.1", "localhost"])
    func bytesTravelBothWays(_ service: (kind: ProxyDaemon.Kind, asks: Bool), host: String) async throws {
        let echo = try EchoServer()
        let daemon = try await ProxyDaemon(service.kind, asksForCredentials: service.asks, target: echo.port).started()
        defer { daemon.stop() }
        let (socket, recorder) = makeSocket(daemon, service.asks ? ProxyDaemon.credentials : nil)
        try socket.connect(toHost: host, onPort: echo.port, withTimeout: .patient)
        let bytes = Self.manyBytes
        socket.write(bytes, withTimeout: .patient, tag: 0)
        socket.readData(toLength: bytes.count, withTimeout: .patient, tag: 0)
        guard case .connected(host, echo.port) = await recorder.next() else {
            throw Unexpected(description: "no connection: \(daemon.program.printed)")
        }
        #expect(try await recorder.readData() == bytes)
        #expect(socket.connectedPort == daemon.port)
        // The server has one client, which is the proxy and not us. (Its port number may equal ours.)
        #expect(echo.peers.count == 1)
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
    }

    @Test(arguments: services, TLSProtocolVersion.tested)
    func aTunnelThroughARealProxyCarriesTLS(_ service: (kind: ProxyDaemon.Kind, asks: Bool), _ version: TLSProtocolVersion)
        async throws
    {
        let server = try MiniSMTPServer(TestCertificates.server().only(version))
        let daemon = try await ProxyDaemon(service.kind, asksForCredentials: service.asks, target: server.port).started()
        defer { daemon.stop() }
        let (socket, recorder) = makeSocket(daemon, service.asks ? ProxyDaemon.credentials : nil)
        try socket.connect(toHost: "localhost", onPort: server.port, withTimeout: .patient)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        try await recorder.connected()
        #expect(try await recorder.readText().hasPrefix("220 "))
        socket.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText().hasPrefix("220 "))
        try socket.beginTLS(settings: TestCertificates.client(for: "localhost"))
        try await recorder.secured()
        #expect(socket.tlsSession?.protocolVersion == version)
        socket.write(Data("NOOP\r\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "250 ok\r\n")
        #expect(server.securedLines == ["NOOP\r\n"])
    }

    @Test(arguments: ProxyDaemon.Kind.allCases.filter(\.isPackaged))
    func tlsThroughATunnelIsVerified(_ kind: ProxyDaemon.Kind) async throws {
        let echo = try EchoServer(TestCertificates.server(for: ["other.example"]))
        let daemon = try await ProxyDaemon(kind, target: echo.port).started()
        defer { daemon.stop() }
        let (socket, recorder) = makeSocket(daemon, nil)
        try socket.connect(toHost: "localhost", onPort: echo.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.client(for: "localhost"))
        try await recorder.connected()
        #expect(try await recorder.disconnected()?.fault == .certificate)
        withExtendedLifetime(socket) {}
    }

    // MARK: - Refusals

    private func error(of daemon: ProxyDaemon, _ credentials: SocketProxy.Credentials?, host: String, port: UInt16) async throws
        -> AsyncSocketError
    {
        let (socket, recorder) = makeSocket(daemon, credentials)
        try socket.connect(toHost: host, onPort: port, withTimeout: .patient)
        guard case .disconnected(let error?) = await recorder.next() else { throw Unexpected(description: "no error") }
        withExtendedLifetime(socket) {}
        return error
    }

    @Test(arguments: [
        (ProxyDaemon.Kind.microsocks, nil), (.tinyproxy, nil),
        (.microsocks, SocketProxy.Credentials(username: "tester", password: "wrong")),
        (.tinyproxy, SocketProxy.Credentials(username: "tester", password: "wrong")),
    ])
    func credentialsAreMissedOrRefused(_ kind: ProxyDaemon.Kind, _ credentials: SocketProxy.Credentials?) async throws {
        let echo = try EchoServer()
        let daemon = try await ProxyDaemon(kind, asksForCredentials: true, target: echo.port).started()
        defer { daemon.stop() }
        let error = try await error(of: daemon, credentials, host: "localhost", port: echo.port)
        #expect(error.code == .proxyAuthenticationRequired && error.fault == .caller)
        #expect(echo.peers.isEmpty)
    }

    @Test(
        arguments: [
            (ProxyDaemon.Kind.danted, "Connection refused"), (.microsocks, "Connection refused"),
            (.tinyproxy, "500 Unable to connect"),
        ].filter(\.0.isPackaged))
    func aPortThatNoOneListensOnIsTold(_ kind: ProxyDaemon.Kind, _ words: String) async throws {
        let closed = try Loopback.freePort()
        let daemon = try await ProxyDaemon(kind, target: closed).started()
        defer { daemon.stop() }
        let error = try await error(of: daemon, nil, host: "127.0.0.1", port: closed)
        #expect(error.code == .proxyRefused && error.fault == .peer)
        #expect(error.message.contains(words))
    }

    @Test(arguments: [(ProxyDaemon.Kind.danted, "not allowed by ruleset"), (.tinyproxy, "403")].filter(\.0.isPackaged))
    func whatTheProxyForbidsIsTold(_ kind: ProxyDaemon.Kind, _ words: String) async throws {
        let echo = try EchoServer()
        let daemon = try await ProxyDaemon(kind, target: 1).started()
        defer { daemon.stop() }
        let error = try await error(of: daemon, nil, host: "127.0.0.9", port: echo.port)
        #expect(error.code == .proxyRefused)
        #expect(error.message.contains(words))
    }

    @Test(arguments: ProxyDaemon.Kind.allCases.filter(\.isPackaged))
    func aNameThatDoesNotExistIsTheProxysToTell(_ kind: ProxyDaemon.Kind) async throws {
        let daemon = try await ProxyDaemon(kind, target: 25).started()
        defer { daemon.stop() }
        // According to RFC 6761, section 6.4, no such name will ever exist.
        let error = try await error(of: daemon, nil, host: "nowhere.invalid", port: 25)
        #expect(error.code == .proxyRefused)
    }

    @Test(arguments: [ProxyDaemon.Kind.danted, .microsocks].filter(\.isPackaged))
    func aSOCKSProxySpeaksNoHTTP(_ kind: ProxyDaemon.Kind) async throws {
        let daemon = try await ProxyDaemon(kind, target: 25).started()
        defer { daemon.stop() }
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.proxy = .http(host: "127.0.0.1", port: daemon.port)
        try socket.connect(toHost: "localhost", onPort: 25, withTimeout: .patient)
        #expect(try await recorder.disconnected()?.code == .proxyFailed)
        withExtendedLifetime(socket) {}
    }
}

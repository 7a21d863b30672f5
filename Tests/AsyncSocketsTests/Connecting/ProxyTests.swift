import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Connections through scripted proxies.
@Suite(.timeLimit(.patient)) struct ProxyTests {
    @Test(arguments: ProxyScript.allCases, Link.Delivery.allCases)
    func aConnectionIsDeliveredWhenTheTunnelIsEstablished(_ kind: ProxyScript, _ delivery: Link.Delivery) async throws {
        let peer = try ScriptedPeer.listening(kind.tunnel() + [.expect("ping\r\n"), .send("pong\r\n")])
        let recorder = Recorder()
        let socket = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        try socket.connect(through: peer, kind)
        // These are queued before the connection is established, and must not be sent before the tunnel
        // exists, because the script does not expect them.
        socket.write(Data("ping\r\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        guard case .connected(ProxyScript.host, ProxyScript.port) = await recorder.next() else {
            throw Unexpected(description: "not connected to the host that was asked for")
        }
        #expect(try await recorder.readText() == "pong\r\n")
        #expect(socket.isConnected)
        #expect(socket.connectedHost == "127.0.0.1" && socket.connectedPort == peer.port)
        _ = try await peer.finish()
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
    }

    @Test(arguments: ProxyScript.allCases, [nil, 1])
    func bytesBehindTheReplyAreTheFirstOfTheTunnel(_ kind: ProxyScript, _ pieces: Int?) async throws {
        let peer = try ScriptedPeer.listening(kind.tunnel(andAtOnce: "220 hello\r\nmore", inPiecesOf: pieces) + [.finish])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        socket.readData(toLength: 4, withTimeout: .patient, tag: 1)
        try await recorder.connected()
        #expect(try await recorder.readText() == "220 hello\r\n")
        #expect(try await recorder.readText() == "more")
        // Once the tunnel is established, a close is attributed to the peer.
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
        withExtendedLifetime(socket) {}
    }

    @Test func credentialsAreGivenToTheProxy() async throws {
        let credentials = SocketProxy.Credentials(username: "user", password: "secret")
        let socksPeer = try ScriptedPeer.listening([
            .expect([5, 2, 0, 2]), .send([5, 2]), .expect([1, 4] + Array("user".utf8) + [6] + Array("secret".utf8)),
            .send([1, 0]),
            .expect([5, 1, 0, 1, 192, 0, 2, 7, 0, 80]), .send(ProxyScript.socks5.success),
        ])
        let httpPeer = try ScriptedPeer.listening([
            .expect("CONNECT 192.0.2.7:80 HTTP/1.1\r\nHost: 192.0.2.7:80\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n"),
            .send(ProxyScript.http.success),
        ])
        for (kind, peer) in [(ProxyScript.socks5, socksPeer), (.http, httpPeer)] {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            socket.proxy = kind.proxy(on: peer.port, credentials: credentials)
            try socket.connect(toHost: "192.0.2.7", onPort: 80, withTimeout: .patient)
            try await recorder.connected()
            _ = try await peer.finish()
            withExtendedLifetime(socket) {}
        }
    }

    /// The address family may be disabled locally, because the proxy connects to the address.
    @Test func anAddressIsAskedForAsAnAddress() async throws {
        let request: [UInt8] = [5, 1, 0, 4, 0x20, 1, 0xd, 0xb8] + [UInt8](repeating: 0, count: 11) + [7, 0, 80]
        let peer = try ScriptedPeer.listening([
            .expect([5, 1, 0]), .send([5, 0]), .expect(request), .send(ProxyScript.socks5.success),
        ])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.isIPv6Enabled = false
        socket.proxy = ProxyScript.socks5.proxy(on: peer.port)
        try socket.connect(toAddress: #require(SocketEndpoint(literal: "2001:db8::7", port: 80)), withTimeout: .patient)
        guard case .connected("2001:db8::7", 80) = await recorder.next() else { throw Unexpected(description: "no connection") }
        _ = try await peer.finish()
        withExtendedLifetime(socket) {}
    }

    @Test func nothingButTheProxyIsLookedUp() async throws {
        let peer = try ScriptedPeer.listening(ProxyScript.http.tunnel())
        let names = Locked<[String]>([])
        let address = try SocketEndpoint.loopback(port: peer.port)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.resolver = Resolver(concurrency: 1) { query in
            names.withLock { $0.append(query.host) }
            return .success([address.withPort(query.port)])
        }
        socket.proxy = .http(host: "proxy.example", port: peer.port)
        try socket.connect(toHost: ProxyScript.host, onPort: ProxyScript.port, withTimeout: .patient)
        try await recorder.connected()
        #expect(names.withLock { $0 } == ["proxy.example"])
        withExtendedLifetime(socket) {}
    }

    /// The interface is used for the connection to the proxy.
    @Test func theConnectionToTheProxyLeavesFromTheInterface() async throws {
        let peer = try ScriptedPeer.listening(ProxyScript.socks5.tunnel())
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.proxy = ProxyScript.socks5.proxy(on: peer.port)
        try socket.connect(toHost: ProxyScript.host, onPort: ProxyScript.port, viaInterface: "127.0.0.5", withTimeout: .patient)
        try await recorder.connected()
        #expect(socket.localHost == "127.0.0.5")
    }

    // MARK: - Refusals

    private func error(of kind: ProxyScript, _ steps: [ScriptedPeer.Step], timeout: Double = .patient) async throws
        -> AsyncSocketError
    {
        let peer = try ScriptedPeer.listening(steps)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind, timeout: timeout)
        socket.write(Data("never sent"), withTimeout: .patient, tag: 0)
        socket.readData(withTimeout: .patient, tag: 0)
        guard case .disconnected(let error?) = await recorder.next() else { throw Unexpected(description: "no error") }
        #expect(!socket.isConnected && socket.isDisconnected)
        // The proxy may still be running its script when the timeout expires.
        if error.code != .connectTimeout { _ = try await peer.finish() }
        return error
    }

    @Test func aRefusalIsToldInTheProxysWords() async throws {
        let socks = try await error(of: .socks5, ProxyScript.socks5.untilRequest + [.send([5, 5, 0, 1, 0, 0, 0, 0, 0, 0])])
        #expect(socks.code == .proxyRefused && socks.fault == .peer && socks.operation == .connect)
        #expect(socks.message.contains("Connection refused") && socks.message.contains("127.0.0.1"))
        let http = try await error(of: .http, ProxyScript.http.untilRequest + [.send("HTTP/1.1 403 Filtered\r\n\r\nno")])
        #expect(http.code == .proxyRefused && http.fault == .peer)
        #expect(http.message.contains("HTTP/1.1 403 Filtered"))
    }

    @Test func aProxyThatWantsToKnowWhoWeAreIsTold() async throws {
        let socks = try await error(of: .socks5, [.expect([5, 1, 0]), .send([5, 255])])
        #expect(socks.code == .proxyAuthenticationRequired && socks.fault == .caller)
        let http = try await error(of: .http, ProxyScript.http.untilRequest + [.send("HTTP/1.1 407 Who are you\r\n\r\n")])
        #expect(http.code == .proxyAuthenticationRequired && http.fault == .caller)
        #expect(http.message.contains("407 Who are you"))
    }

    @Test(arguments: ProxyScript.allCases, ["220 mail.example ESMTP\r\n", "\u{16}\u{3}\u{1}"])
    func aServerThatIsNoProxyIsTold(_ kind: ProxyScript, _ bytes: String) async throws {
        let error = try await error(of: kind, [.send(bytes)])
        #expect(error.code == .proxyFailed && error.fault == .peer)
    }

    @Test func aPeerThatSpeaksTheOtherProtocolIsTold() async throws {
        let http = try await error(of: .http, [.expect(through: "\r\n\r\n"), .send([5, 255])])
        #expect(http.code == .proxyFailed)
        let socks = try await error(of: .socks5, [.expect([5, 1, 0]), .send("HTTP/1.1 400 Bad Request\r\n\r\n")])
        #expect(socks.code == .proxyFailed)
    }

    @Test func anEndlessAnswerIsCutOff() async throws {
        let endless = "HTTP/1.1 200 OK\r\n" + String(repeating: "A: b\r\n", count: 10_000)
        let error = try await error(of: .http, ProxyScript.http.untilRequest + [.send(endless)])
        #expect(error.code == .proxyFailed)
    }

    // MARK: - Ends

    /// All prefixes of a negotiation, from our first bytes to a reply without its last byte.
    private static let beginnings = ProxyScript.allCases.flatMap { kind in
        [
            (kind, [kind.firstBytes]), (kind, kind.untilRequest),
            (kind, kind.untilRequest + [.send(Array(kind.success.dropLast()))]),
        ]
    }

    @Test(arguments: beginnings.indices, [ScriptedPeer.Step.finish, .reset])
    func aProxyThatEndsInTheMiddleIsTold(_ index: Int, _ end: ScriptedPeer.Step) async throws {
        let (kind, steps) = Self.beginnings[index]
        let error = try await error(of: kind, steps + [end])
        #expect(error.code == .proxyFailed && error.fault == .peer)
        #expect(error.message.contains("before the tunnel was established"))
    }

    @Test(arguments: beginnings.indices)
    func theTimeoutOfConnectCoversTheNegotiation(_ index: Int) async throws {
        let (kind, steps) = Self.beginnings[index]
        // On a busy machine, the timeout may expire before the proxy is running. Then try again.
        for _ in 0..<10 {
            let hasComeSoFar = try TestSignal()
            let error = try await error(of: kind, steps + [.fire(hasComeSoFar)], timeout: 0.5)
            #expect(error.code == .connectTimeout)
            if hasComeSoFar.hasFired { return }
        }
        Issue.record("the proxy never came so far")
    }

    @Test(arguments: ProxyScript.allCases)
    func aNegotiationCanBeDisconnected(_ kind: ProxyScript) async throws {
        let isAsked = try TestSignal()
        let peer = try ScriptedPeer.listening(kind.untilRequest + [.fire(isAsked), .expectEnd])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        try await isAsked.wait(within: .patient)
        #expect(!socket.isConnected && !socket.isDisconnected)
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    @Test(arguments: ProxyScript.allCases)
    func aSocketThatIsLetGoOfLeavesTheProxy(_ kind: ProxyScript) async throws {
        let isAsked = try TestSignal()
        let peer = try ScriptedPeer.listening(kind.untilRequest + [.fire(isAsked), .expectEnd])
        var socket: AsyncSocket? = AsyncSocket()
        try socket?.connect(through: peer, kind)
        try await isAsked.wait(within: .patient)
        socket = nil
        _ = try await peer.finish()
    }

    // MARK: - Before anything is sent

    @Test(arguments: [
        (ProxyScript.http, "a\r\nX: y", nil), (.http, "a b", nil), (.socks5, String(repeating: "a", count: 256), nil),
        (.socks5, "a\r\n", nil), (.http, "fe80::1%lo", nil),
        (.http, "a", SocketProxy.Credentials(username: "a\r\nX: y", password: "")),
        (.http, "a", SocketProxy.Credentials(username: "a:b", password: "c")),
        (.socks5, "a", SocketProxy.Credentials(username: "", password: "c")),
    ])
    func whatCannotBeSentIsRefusedBeforeItIs(_ kind: ProxyScript, _ host: String, _ credentials: SocketProxy.Credentials?) throws
    {
        let socket = AsyncSocket()
        socket.proxy = kind.proxy(on: 1, credentials: credentials)
        let error = #expect(throws: AsyncSocketError.self) { try socket.connect(toHost: host, onPort: 80, withTimeout: .patient) }
        #expect(error?.code == .badParameter && error?.fault == .caller)
        #expect(socket.isDisconnected)
    }

    @Test func aSocketGoesOnWithoutAProxyAfterARefusal() async throws {
        let peer = try ScriptedPeer.listening([.expect([5, 1, 0]), .send([5, 255])])
        let direct = try ScriptedPeer.listening([.send("hello\r\n")])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, .socks5)
        #expect(try await recorder.disconnected()?.code == .proxyAuthenticationRequired)
        socket.proxy = nil
        try socket.connect(toHost: "127.0.0.1", onPort: direct.port, withTimeout: .patient)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        try await recorder.connected()
        #expect(try await recorder.readText() == "hello\r\n")
        withExtendedLifetime(socket) {}
    }

    @Test func aProxyThatIsNotThereIsNamed() async throws {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.proxy = .socks5(host: "127.0.0.1", port: 1)
        try socket.connect(toHost: ProxyScript.host, onPort: ProxyScript.port, withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectFailed && error.errno == ECONNREFUSED)
        #expect(error.message.contains("127.0.0.1:1"))
    }
}

import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// `startTLS` on connections through a proxy: the tunnel's peer and its certificate, and bytes that an
/// attacker injects between the proxy's reply and the handshake.
@Suite(.timeLimit(.patient)) struct ProxyUpgradeTests {
    private static let injected = "250 injected\r\n"

    @Test(arguments: ProxyScript.allCases, TLSProtocolVersion.tested)
    func tlsBeginsWithTheFirstByteOfTheTunnel(_ kind: ProxyScript, _ version: TLSProtocolVersion) async throws {
        let settings = try TestCertificates.server(for: [ProxyScript.host]).only(version)
        let peer = try ScriptedPeer.listening(kind.tunnel() + [.startTLS(settings), .expect("ping\r\n"), .send("pong\r\n")])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        try socket.beginTLS(settings: TestCertificates.client(for: ProxyScript.host))
        socket.write(Data("ping\r\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        try await recorder.connected()
        try await recorder.secured()
        #expect(try await recorder.readText() == "pong\r\n")
        #expect(socket.tlsSession?.protocolVersion == version)
        _ = try await peer.finish()
    }

    @Test(arguments: ProxyScript.allCases, TLSProtocolVersion.tested)
    func aTunnelIsUpgradedInTheMiddle(_ kind: ProxyScript, _ version: TLSProtocolVersion) async throws {
        let settings = try TestCertificates.server(for: [ProxyScript.host]).only(version)
        let peer = try ScriptedPeer.listening(
            kind.tunnel(andAtOnce: "220 hello\r\n") + [
                .expect("STARTTLS\r\n"), .send("220 go\r\n"), .startTLS(settings), .expect("ping\r\n"), .send("pong\r\n"),
            ])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        try await recorder.connected()
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "220 hello\r\n")
        socket.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "220 go\r\n")
        try socket.beginTLS(settings: TestCertificates.client(for: ProxyScript.host))
        try await recorder.secured()
        socket.write(Data("ping\r\n"), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "pong\r\n")
        _ = try await peer.finish()
    }

    /// A certificate of the proxy or of another host is not valid for the requested host.
    @Test(arguments: ProxyScript.allCases)
    func aCertificateForAnotherHostIsRefused(_ kind: ProxyScript) async throws {
        let cut = ScriptedPeer.Step.startTLS(try TestCertificates.server(for: ["127.0.0.1", "proxy.example"]))
        let peer = try ScriptedPeer.listening(kind.tunnel() + [cut])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        try socket.beginTLS(settings: TestCertificates.client(for: ProxyScript.host))
        try await recorder.connected()
        let error = try #require(try await recorder.disconnected())
        #expect(error.fault == .certificate)
        #expect(!socket.isSecure)
    }

    @Test(arguments: ProxyScript.allCases, [nil, 1])
    func whatIsInjectedBehindTheReplyIsRefusedByAClient(_ kind: ProxyScript, _ pieces: Int?) async throws {
        let peer = try ScriptedPeer.listening(kind.tunnel(andAtOnce: Self.injected, inPiecesOf: pieces))
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        try socket.beginTLS(settings: TestCertificates.client(for: ProxyScript.host))
        socket.readData(withTimeout: .patient, tag: 0)
        try await recorder.connected()
        let error = try #require(try await recorder.disconnected())
        #expect(error.fault == .peer)
        // In pieces, the first one may arrive when the handshake has already started.
        if pieces == nil {
            #expect(error.code == .earlyPlaintext)
            #expect(error.namesEarlyBytes(upTo: Self.injected.utf8.count))
        } else {
            #expect(error.code == .earlyPlaintext || error.tls?.code == .notTLS)
        }
    }

    @Test(arguments: ProxyScript.allCases)
    func whatIsInjectedBehindTheReplyFailsTheHandshakeOfAServer(_ kind: ProxyScript) async throws {
        let peer = try ScriptedPeer.listening(kind.tunnel(andAtOnce: Self.injected))
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(through: peer, kind)
        try socket.beginTLS(settings: TestCertificates.server())
        socket.readData(withTimeout: .patient, tag: 0)
        try await recorder.connected()
        #expect(try await recorder.disconnected()?.tls?.code == .notTLS)
        withExtendedLifetime(socket) {}
    }

    /// A ClientHello in the same segment as the proxy's reply starts the handshake.
    @Test(arguments: ProxyScript.allCases, TLSProtocolVersion.tested)
    func aClientHelloBehindTheReplyBeginsTheHandshakeOfAServer(_ kind: ProxyScript, _ version: TLSProtocolVersion) async throws {
        let splice = try await Splice.make()
        try splice.client.beginTLS(settings: TestCertificates.client().only(version))
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.proxy = kind.proxy(on: splice.proxyPort)
        try socket.connect(toHost: ProxyScript.host, onPort: ProxyScript.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.server())
        socket.write(Data("welcome\r\n"), withTimeout: .patient, tag: 0)
        try await splice.join(kind)
        try await recorder.connected()
        try await recorder.secured()
        try await splice.atClient.secured()
        splice.client.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await splice.atClient.readText() == "welcome\r\n")
        withExtendedLifetime(socket) {}
    }
}

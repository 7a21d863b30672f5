import AsyncSocketsTesting
import SocketTLS
import SocketTestSupport
import Testing

@Suite struct ScriptedPeerTLSTests {
    private let client: TLSClientSettings
    private let server: TLSServerSettings

    init() throws {
        let authority = try CertificateAuthority()
        client = try authority.clientSettings(serverName: "localhost")
        server = try .server(identity: authority.issue(.server(names: ["localhost"])).identity())
    }

    private func of(_ version: TLSProtocolVersion) -> TLSClientSettings {
        var settings = client
        settings.maximumVersion = version
        return settings
    }

    @Test(arguments: [TLSProtocolVersion.tls12, .tls13])
    func twoPeersUpgradeToTLS(_ version: TLSProtocolVersion) async throws {
        let text = String(repeating: "secret ", count: 10_000)
        let peer = try ScriptedPeer.listening([
            .expect("STARTTLS\r\n"), .send("220 go\r\n"), .startTLS(server), .expect("EHLO\r\n"), .send(text, inPiecesOf: 5000),
            .sendCloseNotify, .finish, .expectEnd,
        ])
        let other = try ScriptedPeer.connecting(
            toPort: peer.port,
            [
                .send("STARTTLS\r\n"), .expect("220 go\r\n"), .startTLS(of(version)), .send("EHLO\r\n", inPiecesOf: 1),
                .expect(text),
                .expectEnd, .sendCloseNotify, .finish,
            ])
        let report = try await other.finish()
        _ = try await peer.finish()
        #expect(report.session?.protocolVersion == version)
        #expect(!String(decoding: report.transcript.fromServer, as: UTF8.self).contains("secret"))
    }

    @Test func handshakePassesThroughARelayByteByByte() async throws {
        let peer = try ScriptedPeer.listening([.startTLS(server), .expect("ping"), .send("pong")])
        let relay = try TamperingRelay(toPort: peer.port, fromClient: [.pieces(of: 1)], fromServer: [.pieces(of: 1)])
        let other = try ScriptedPeer.connecting(toPort: relay.port, [.startTLS(client), .send("ping"), .expect("pong")])
        _ = try await other.finish()
        _ = try await peer.finish()
    }

    @Test func finishWithoutCloseNotifyIsATruncation() async throws {
        let peer = try ScriptedPeer.listening([.startTLS(server), .send("half"), .finish])
        let other = try ScriptedPeer.connecting(toPort: peer.port, [.startTLS(client), .expect("half"), .expectEnd])
        let error = await #expect(throws: LoopbackError.self) { try await other.finish() }
        #expect(error?.code == .tlsFailed)
        #expect(error?.step == 2)
        #expect(error?.message.contains("truncated") == true)
    }

    @Test func bytesInjectedLateComeAfterTheClientHello() async throws {
        let peer = try ScriptedPeer.listening([.expectClientHello, .send("250 injected\r\n"), .startTLS(server)])
        let other = try ScriptedPeer.connecting(toPort: peer.port, [.startTLS(client)])
        let error = await #expect(throws: LoopbackError.self) { try await other.finish() }
        #expect(error?.code == .tlsFailed)
        #expect(error?.message.contains("notTLS") == true)
        _ = await #expect(throws: LoopbackError.self) { try await peer.finish() }
    }

    @Test(arguments: [0, 1, 100], ScriptedPeer.HandshakeCut.Ending.allCases)
    func handshakeIsBrokenOffAfterSoManyBytes(_ count: Int, _ ending: ScriptedPeer.HandshakeCut.Ending) async throws {
        let peer = try ScriptedPeer.listening([.startTLS(server, cut: .init(after: count, ending))])
        let other = try ScriptedPeer.connecting(
            toPort: peer.port, [.startTLS(client)], timeout: ending == .silence ? .seconds(10) : .patient)
        let report = try await peer.finish()
        #expect(report.transcript.fromServer.count == count)
        let error = await #expect(throws: LoopbackError.self) { try await other.finish() }
        switch ending {
        case .finish: #expect(error?.message.contains("closedDuringHandshake") == true)
        case .reset: #expect(error?.code == .reset)
        case .silence: #expect(error?.code == .timedOut)
        }
    }

    @Test func alterationOnTheWireBreaksTLS() async throws {
        let peer = try ScriptedPeer.listening([.startTLS(server)])
        let relay = try TamperingRelay(toPort: peer.port, fromServer: [.alter(at: 200, xor: 1)])
        let other = try ScriptedPeer.connecting(toPort: relay.port, [.startTLS(client)])
        let error = await #expect(throws: LoopbackError.self) { try await other.finish() }
        #expect(error?.code == .tlsFailed)
    }

    @Test func rawBytesGoPastTLS() async throws {
        let peer = try ScriptedPeer.listening([.startTLS(server), .sendRaw(Array("not a record".utf8))])
        let other = try ScriptedPeer.connecting(toPort: peer.port, [.startTLS(client), .expect("anything")])
        let error = await #expect(throws: LoopbackError.self) { try await other.finish() }
        #expect(error?.code == .tlsFailed)
    }
}

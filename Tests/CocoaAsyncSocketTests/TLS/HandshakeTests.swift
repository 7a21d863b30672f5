import AsyncSockets
import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Settings of a server with a PKCS#12 identity, and of a client that trusts its CA.
enum TestSettings {
    static func server(_ more: [String: NSObject] = [:]) throws -> [String: NSObject] {
        let identity = try TestIdentity.make()
        let settings: [String: NSObject] = [
            kCFStreamSSLIsServer as String: true as CFBoolean,
            kCFStreamSSLCertificates as String: [identity.identity] as CFArray,
        ]
        return settings.merging(more) { $1 }
    }

    static func client(_ more: [String: NSObject] = [:]) throws -> [String: NSObject] {
        let settings: [String: NSObject] = [
            kCFStreamSSLPeerName as String: "localhost\0" as NSString,
            GCDAsyncSocketSSLAnchorCertificates: [try TestIdentity.root] as NSArray,
        ]
        return settings.merging(more) { $1 }
    }
}

@Suite(.timeLimit(.patient)) struct HandshakeTests {
    @Test func aLiveConnectionIsUpgradedToTLS() async throws {
        let wire = try await Wire.make()
        wire.client.write(Data("STARTTLS\n".utf8), withTimeout: -1, tag: 1)
        wire.server.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: 1)
        try await wire.atServer.wait(for: "read 1: STARTTLS\n")
        #expect(!wire.client.isSecure && wire.client.sslContext() == nil)
        try await wire.secure(client: TestSettings.client(), server: TestSettings.server())
        #expect(wire.client.isSecure && wire.server.isSecure)
        wire.client.write(Data("secret".utf8), withTimeout: -1, tag: 2)
        wire.server.readData(toLength: 6, withTimeout: -1, tag: 2)
        try await wire.atServer.wait(for: "read 2: secret")
        wire.client.disconnect()
        #expect(!wire.client.isSecure)
    }

    /// The cast to certificates includes the identity.
    @Test func anIdentityCanBeCastTogetherWithItsChain() async throws {
        let identity = try TestIdentity.make()
        let intermediate = try TestIdentity.certificate(pem: TestCertificates.authority.intermediatePEM)
        let items = Spellings.certificates(identity.identity, [intermediate])
        #expect(items.count == 2 && items[0] === identity.identity as AnyObject && items[1] == intermediate)
        let wire = try await Wire.make()
        try await wire.secure(
            client: TestSettings.client(),
            server: TestSettings.server([kCFStreamSSLCertificates as String: items as CFArray]))
        #expect(wire.client.isSecure)
    }

    @Test func theSSLContextReportsTheNegotiatedParameters() async throws {
        let wire = try await Wire.make()
        let alpn: NSArray = ["xmpp-client", "http/1.1"]
        try await wire.secure(
            client: TestSettings.client([
                GCDAsyncSocketSSLALPN: alpn,
                GCDAsyncSocketSSLProtocolVersionMax: SSLProtocol.tlsProtocol12.rawValue as NSNumber,
                GCDAsyncSocketSSLCipherSuites: [NSNumber(value: TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)] as NSArray,
            ]), server: TestSettings.server([GCDAsyncSocketSSLALPN: ["http/1.1"] as NSArray]))
        var version = SSLProtocol.sslProtocolUnknown
        var suite: SSLCipherSuite = 0
        var protocols: CFArray?
        var trust: SecTrust?
        wire.client.perform {
            guard let context = wire.client.sslContext() else { return }
            _ = SSLGetNegotiatedProtocolVersion(context, &version)
            _ = SSLGetNegotiatedCipher(context, &suite)
            _ = SSLCopyALPNProtocols(context, &protocols)
            _ = SSLCopyPeerTrust(context, &trust)
        }
        #expect(version == .tlsProtocol12 && suite == TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
        #expect(protocols as? [String] == ["http/1.1"])
        #expect(trust.map(SecTrustGetCertificateCount) == 2)
    }

    @Test func aCipherSuiteListLimitsTheTLSVersion() async throws {
        for (suite, expected) in [
            (TLS_AES_128_GCM_SHA256, SSLProtocol.tlsProtocol13),
            (TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, SSLProtocol.tlsProtocol12),
        ] {
            let wire = try await Wire.make()
            let list: NSArray = [NSNumber(value: TLS_RSA_WITH_AES_128_CBC_SHA), NSNumber(value: suite)]
            try await wire.secure(
                client: TestSettings.client([GCDAsyncSocketSSLCipherSuites: list]), server: TestSettings.server())
            var version = SSLProtocol.sslProtocolUnknown
            var negotiated: SSLCipherSuite = 0
            wire.client.perform {
                guard let context = wire.client.sslContext() else { return }
                _ = SSLGetNegotiatedProtocolVersion(context, &version)
                _ = SSLGetNegotiatedCipher(context, &negotiated)
            }
            #expect(version == expected && negotiated == suite)
        }
    }

    @Test func oldMinimumVersionsAndObsoleteSettingsAreAccepted() async throws {
        let wire = try await Wire.make()
        let effectless: [String: NSObject] = [
            GCDAsyncSocketSSLProtocolVersionMin: SSLProtocol.tlsProtocol1.rawValue as NSNumber,
            GCDAsyncSocketSSLProtocolVersionMax: SSLProtocol.sslProtocolUnknown.rawValue as NSNumber,
            GCDAsyncSocketSSLSessionOptionFalseStart: true as NSObject,
            GCDAsyncSocketSSLSessionOptionSendOneByteRecord: true as NSObject,
            GCDAsyncSocketSSLDiffieHellmanParameters: Data([1]) as NSObject,
            GCDAsyncSocketUseCFStreamForTLS: true as NSObject,
            "a key of another library": NSNull(),
        ]
        try await wire.secure(client: TestSettings.client(effectless), server: TestSettings.server(effectless))
    }

    @Test func readsLargerThanWhatIsReadAheadAreServed() async throws {
        let wire = try await Wire.make()
        try await wire.secure(client: TestSettings.client(), server: TestSettings.server())
        let bytes = pattern(3_000_000)
        wire.server.write(bytes, withTimeout: -1, tag: 1)
        wire.client.readData(toLength: UInt(bytes.count), withTimeout: -1, tag: 1)
        try await wire.atClient.wait(for: "read 1: \(bytes.count) bytes")
        #expect(wire.atClient.bytes == bytes)
    }

    @Test func aReadOverSeveralRecordsWithAShortTimeoutIsComplete() async throws {
        let wire = try await Wire.make()
        try await wire.secure(client: TestSettings.client(), server: TestSettings.server())
        // All data is available when the read starts. Data that was decrypted earlier must not wait for the
        // network.
        for _ in 0..<40 { wire.server.write(Data(count: 1000), withTimeout: -1, tag: 1) }
        wire.client.readData(toLength: 1000, withTimeout: -1, tag: 1)
        try await wire.atClient.wait(for: "read 1: 1000 bytes")
        try await eventually("all is written") { wire.atServer.lines.filter { $0 == "wrote 1" }.count == 40 }
        wire.atClient.extraTimes = Array(repeating: 0.1, count: 100)
        wire.client.readData(toLength: 39_000, withTimeout: 0.1, tag: 2)
        try await wire.atClient.wait(for: "read 2: 39000 bytes")
    }

    @Test func bytesOfTheHandshakeThatCameEarlyAreTheHandshakes() async throws {
        let wire = try await Wire.make()
        // The ClientHello is still unread when the server starts TLS.
        wire.client.startTLS(try TestSettings.client())
        wire.server.readData(toLength: 0, withTimeout: -1, tag: 0)
        wire.server.startTLS(try TestSettings.server())
        try await wire.atClient.wait(for: "secure")
        wire.server.write(Data("x".utf8), withTimeout: -1, tag: 1)
        wire.client.readData(withTimeout: -1, tag: 1)
        try await wire.atClient.wait(for: "read 1: x")
    }

    @Test func theHandshakeWaitsForEarlierReadsAndWrites() async throws {
        let peer = try ScriptedPeer.listening([
            .expect("STARTTLS\r\n"), .send("220 go\r\n"), .startTLS(try TestCertificates.server()), .expect("inside"),
            .send("yes"),
        ])
        let diary = Diary()
        let socket = makeSocket(diary)
        // Everything is requested before the connection is established.
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.write(Data("STARTTLS\r\n".utf8), withTimeout: -1, tag: 1)
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 1)
        socket.startTLS(try TestSettings.client())
        socket.write(Data("inside".utf8), withTimeout: -1, tag: 2)
        socket.readData(toLength: 3, withTimeout: -1, tag: 2)
        try await diary.wait(for: "read 2: yes")
        #expect(
            diary.lines == [
                "connected to 127.0.0.1", "wrote 1", "read 1: 220 go\r\n", "secure", "wrote 2", "read 2: yes",
            ])
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func injectedPlaintextAfterTheReplyFailsTheUpgrade() async throws {
        let peer = try ScriptedPeer.listening([.send("220 go\r\n250 injected\r\n"), .expectEnd])
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 1)
        socket.startTLS(try TestSettings.client())
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 2)
        let error = try await diary.end()
        #expect(error?.domain == "kCFStreamErrorDomainSSL" && error?.code == Int(errSSLProtocol))
        #expect(!diary.has(prefix: "read 2") && !diary.has("secure"))
        peer.stop()
    }

    @Test func aSecondStartTLSHasNoEffect() async throws {
        let wire = try await Wire.make()
        try await wire.secure(client: TestSettings.client(), server: TestSettings.server())
        wire.client.startTLS([GCDAsyncSocketSSLPeerName: NSNull()])
        wire.client.startTLS(nil)
        wire.client.write(Data("still here".utf8), withTimeout: -1, tag: 1)
        wire.server.readData(toLength: 10, withTimeout: -1, tag: 1)
        try await wire.atServer.wait(for: "read 1: still here")
        #expect(wire.client.isConnected && wire.client.isSecure)
    }

    @Test func aSocketThatIsUsedAgainBeginsInPlaintextAndMayUpgradeAgain() async throws {
        let (listener, atListener) = try Wire.listening()
        let diary = Diary()
        let socket = makeSocket(diary)
        for round in 0..<2 {
            try socket.connect(toHost: "localhost", onPort: listener.localPort)
            socket.startTLS(try TestSettings.client())
            try await eventually("it is accepted") { atListener.accepted.count == round + 1 }
            atListener.accepted[round].startTLS(try TestSettings.server())
            try await eventually("it is secure") { diary.lines.filter { $0 == "secure" }.count == round + 1 }
            socket.disconnect()
        }
    }

    @Test func sessionsAreResumedOnlyForTheSamePeerID() async throws {
        var settings = try TestCertificates.server().only(.tls13)
        settings.sessionTickets = .issued(1)
        let server = TicketServer(settings)
        let listener = AsyncSocket(inlineDelegate: server)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peerID = Data("a peer of \(UUID())".utf8)
        for id in [peerID, peerID, Data("another \(UUID())".utf8), nil, nil] {
            let diary = Diary()
            let socket = makeSocket(diary)
            try socket.connect(toHost: "localhost", onPort: listener.localPort)
            socket.startTLS(try TestSettings.client(id.map { [GCDAsyncSocketSSLPeerID: $0 as NSObject] } ?? [:]))
            // The ticket arrives with the first bytes.
            socket.readData(toLength: 6, withTimeout: -1, tag: 1)
            try await diary.wait(for: "read 1: ticket")
            socket.disconnect()
            _ = try await diary.end()
        }
        #expect(server.resumed.withLock { $0 } == [false, true, false, false, false])
    }
}

/// A server that issues tickets and records which handshakes resume a session.
private final class TicketServer: AsyncSocketDelegate, Sendable {
    let resumed = Locked<[Bool]>([])
    private let sockets = Locked<[AsyncSocket]>([])
    private let settings: TLSServerSettings

    init(_ settings: TLSServerSettings) {
        self.settings = settings
    }

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        sockets.withLock { $0.append(newSocket) }
        do throws(AsyncSocketError) {
            try newSocket.beginTLS(settings: settings)
        } catch {
            Issue.record(error)
        }
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        resumed.withLock { $0.append(socket.tlsSession?.isResumed ?? false) }
        socket.write(Data("ticket".utf8), withTimeout: -1)
    }
}

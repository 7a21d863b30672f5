import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// `startTLS` between two of our sockets.
@Suite(.timeLimit(.patient)) struct StartTLSTests {
    // MARK: - The upgrade

    @Test(arguments: TLSProtocolVersion.tested, Link.Delivery.allCases)
    func aLiveConnectionIsUpgradedToTLS(_ version: TLSProtocolVersion, _ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.client.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 0)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "STARTTLS\r\n")
        #expect(try await link.atClient.wrote() == 0)
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        link.client.write(Data("secret\r\n"), withTimeout: .patient, tag: 1)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.readText() == "secret\r\n")
        link.server.write(Data("answer\r\n"), withTimeout: .patient, tag: 2)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 2)
        #expect(try await link.atClient.readText() == "answer\r\n")
    }

    @Test(arguments: Link.Delivery.allCases)
    func theHandshakeWaitsForEarlierReadsAndWrites(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.client.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 1)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 2)
        try link.client.beginTLS(settings: TestCertificates.client())
        link.client.write(Data("secret\r\n"), withTimeout: .patient, tag: 3)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 4)
        #expect(!link.client.isSecure)
        #expect(try await link.atClient.wrote() == 1)

        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.readText() == "STARTTLS\r\n")
        link.server.write(Data("220 go\r\n"), withTimeout: .patient, tag: 2)
        try link.server.beginTLS(settings: TestCertificates.server())
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 3)
        link.server.write(Data("answer\r\n"), withTimeout: .patient, tag: 4)
        #expect(try await link.atServer.wrote() == 2)
        try await link.atServer.secured()
        #expect(try await link.atServer.readText() == "secret\r\n")

        #expect(try await link.atClient.readText() == "220 go\r\n")
        try await link.atClient.secured()
        #expect(try await link.atClient.readText() == "answer\r\n")
    }

    @Test func startTLSMayBeCalledBeforeTheConnectionIsEstablished() async throws {
        let server = try TestCertificates.server()
        let atListener = Recorder { _, told in
            guard case .accepted(let socket) = told else { return }
            try? socket.beginTLS(settings: server)
            socket.write(Data("hello\r\n"), withTimeout: .patient, tag: 0)
        }
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let atClient = Recorder()
        let client = AsyncSocket(inlineDelegate: atClient)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try client.beginTLS(settings: TestCertificates.client())
        client.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        try await atClient.connected()
        try await atClient.secured()
        #expect(try await atClient.readText() == "hello\r\n")
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func d19TheSessionHasTheNegotiatedParameters(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        var (client, server) = try TestCertificates.mutual()
        client.applicationProtocols = ["imap", "smtp"]
        server.applicationProtocols = ["smtp"]
        #expect(link.client.tlsSession == nil)
        try await link.secure(client: client.only(version), server: server)
        let session = try #require(link.client.tlsSession)
        #expect(session.protocolVersion == version)
        #expect(session.applicationProtocol == "smtp")
        #expect(!session.cipherSuite.isEmpty)
        #expect(session.group != nil)
        #expect(session.peerCertificates.first?.dnsNames == ["localhost"])
        let atServer = try #require(link.server.tlsSession)
        #expect(atServer.cipherSuite == session.cipherSuite)
        #expect(atServer.serverName == "localhost")
        #expect(atServer.peerCertificates.first?.commonName == "alice")
        #expect(link.client.isSecure && link.server.isSecure)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func largeDataArrivesWholeInBothDirections(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        let data = pattern(3_000_000)
        link.client.write(data, withTimeout: .patient, tag: 1)
        link.server.write(data, withTimeout: .patient, tag: 2)
        link.server.readData(toLength: data.count, withTimeout: .patient, tag: 3)
        link.client.readData(toLength: data.count, withTimeout: .patient, tag: 4)
        #expect(try await link.atServer.readData() == data)
        #expect(try await link.atClient.readData() == data)
    }

    @Test func manySmallWritesArriveInOrderAndAreEachComplete() async throws {
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client(), server: TestCertificates.server())
        var expected = ""
        for number in 0..<2_000 {
            link.client.write(Data("\(number),"), withTimeout: .patient, tag: number)
            expected += "\(number),"
        }
        link.server.readData(toLength: expected.utf8.count, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == expected)
        for number in 0..<2_000 { #expect(try await link.atClient.wrote() == number) }
    }

    // MARK: - Misuse

    @Test func aSecondStartTLSThrows() async throws {
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client(), server: TestCertificates.server())
        let error = #expect(throws: AsyncSocketError.self) { try link.client.beginTLS(settings: TestCertificates.client()) }
        #expect(error?.code == .badConfiguration)
        #expect(error?.fault == .caller)
        link.client.write(Data("still secure"), withTimeout: .patient, tag: 0)
        link.server.readData(toLength: 12, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "still secure")
    }

    @Test func startTLSWithoutAConnectionThrows() throws {
        let error = #expect(throws: AsyncSocketError.self) { try AsyncSocket().beginTLS(settings: TestCertificates.client()) }
        #expect(error?.code == .badConfiguration)
    }

    /// Settings that name a file that does not exist: `startTLS` throws.
    static func broken<Side>(_ settings: TLSSettings<Side>) -> TLSSettings<Side> {
        var settings = settings
        settings.trustRoots = .file(path: "/no/such/file.pem")
        if settings.values.role == .server { settings.values.clientCertificates = .required }
        return settings
    }

    @Test(arguments: Link.Delivery.allCases, [false, true])
    func invalidTLSSettingsCloseTheConnection(_ delivery: Link.Delivery, asServer: Bool) async throws {
        let link = try await Link.make(delivery)
        link.client.write(Data("before\r\n"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.wrote() == 0)
        let thrown = #expect(throws: AsyncSocketError.self) {
            if asServer {
                try link.client.beginTLS(settings: Self.broken(TestCertificates.server()))
            } else {
                try link.client.beginTLS(settings: Self.broken(TestCertificates.client()))
            }
        }
        #expect(thrown?.code == .tls)
        #expect(thrown?.fault == .caller)
        link.client.write(Data("secret"), withTimeout: .patient, tag: 1)
        link.server.readDataToEnd(withTimeout: .patient)
        #expect(try await link.atServer.readText() == "before\r\n")
        #expect(try await link.atClient.disconnected() == thrown)
    }

    /// In an inline callback, where requests take effect immediately.
    @Test func aSettingsErrorInACallbackEndsTheConnection() async throws {
        let settings = Self.broken(try TestCertificates.server())
        let atListener = Recorder { _, told in
            guard case .accepted(let socket) = told else { return }
            try? socket.beginTLS(settings: settings)
            socket.write(Data("secret"), withTimeout: .patient, tag: 0)
        }
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.expectEnd])
        _ = try await atListener.accepted()
        #expect(try await atListener.disconnected()?.tls?.fault == .caller)
        _ = try await peer.finish()
    }

    /// The connection is not established yet, and never is.
    @Test func aSettingsErrorWhileConnectingEndsTheAttempt() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        let settings = Self.broken(try TestCertificates.client())
        let thrown = #expect(throws: AsyncSocketError.self) { try socket.beginTLS(settings: settings) }
        socket.write(Data("secret"), withTimeout: .patient, tag: 0)
        while true {
            let told = await recorder.next()
            if case .connected = told { continue }
            guard case .disconnected(let error) = told else { throw Unexpected(description: "\(told)") }
            #expect(error == thrown)
            break
        }
        withExtendedLifetime(atListener) {}
    }

    /// The connection is refused. The disconnect event has the same error as for a read, and `startTLS` does
    /// not throw.
    @Test func startTLSAfterAnEndByItselfThrowsNothing() async throws {
        let refusing = try RawSocket.refusing()
        let port = try refusing.localPort
        for _ in 0..<40 {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
            try socket.beginTLS(settings: TestCertificates.client())
            let error = try await recorder.disconnected()
            #expect(error?.code == .connectFailed)
            try socket.beginTLS(settings: TestCertificates.client())
        }
    }

    @Test func whoWaitsForStartTLSAfterAnEndIsToldWhyItEnded() async throws {
        let refusing = try RawSocket.refusing()
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: refusing.localPort, withTimeout: .patient)
        #expect(try await recorder.disconnected()?.code == .connectFailed)
        let operations = Operations()
        operations.read(.anyBytes, on: socket)
        operations.write(Data("late"), on: socket)
        operations.startTLS(try TestCertificates.client(), on: socket)
        operations.startTLS(try TestCertificates.client(), on: socket)
        try await operations.expect(.failed(.connectFailed))
    }

    // MARK: - The end of a secure connection

    @Test(arguments: TLSProtocolVersion.tested)
    func bytesBeforeTheCloseNotifyStayReadable(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        link.server.write(Data("last words"), withTimeout: .patient, tag: 0)
        link.server.disconnectAfterWriting()
        #expect(try await link.atServer.disconnected() == nil)
        link.client.readData(toLength: 4, withTimeout: .patient, tag: 1)
        #expect(try await link.atClient.readText() == "last")
        link.client.readData(toLength: 6, withTimeout: .patient, tag: 2)
        #expect(try await link.atClient.readText() == " words")
        #expect(try await link.atClient.disconnected()?.code == .closedByPeer)
    }
}

import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Plaintext that an attacker injects around the STARTTLS exchange. `Recorder.disconnected()` fails the test
/// if data is delivered.
@Suite(.timeLimit(.patient)) struct InjectionTests {
    /// When the injected bytes arrive.
    enum Moment: CaseIterable, Sendable {
        /// In the same segment as the last line of plaintext.
        case sameSegment
        /// In a separate segment before the upgrade starts.
        case nextSegment
        /// After the handshake has started.
        case late

        var writesBeforeUpgrade: Int {
            switch self {
            case .sameSegment: 1
            case .nextSegment: 2
            case .late: 0
            }
        }
    }

    private static let injected = Data("250 injected\r\n")

    // The attacker is one of our plaintext sockets at the other end. It does not use TLS, because the
    // connection must close before the handshake.

    @Test(arguments: Moment.allCases, Link.Delivery.allCases)
    func aResponseInjectedIntoAClientIsNeverDelivered(_ moment: Moment, _ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.client.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 0)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        let reply = Data("220 go\r\n")
        link.server.write(moment == .sameSegment ? reply + Self.injected : reply, withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "220 go\r\n")
        if moment == .nextSegment { link.server.write(Self.injected, withTimeout: .patient, tag: 1) }
        // A write may be sent in several pieces, so wait for the last one.
        for _ in 0..<moment.writesBeforeUpgrade { _ = try await link.atServer.wrote() }
        // The injected bytes are now in our kernel's buffer. A read before the upgrade would return them, a
        // later one must not.
        try link.client.beginTLS(settings: TestCertificates.client())
        link.client.readData(withTimeout: .patient, tag: 2)
        if moment == .late {
            link.server.readData(to: Data([0x16, 0x03]), withTimeout: .patient, tag: 2)
            _ = try await link.atServer.readData()
            link.server.write(Self.injected, withTimeout: .patient, tag: 1)
        }
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.fault == .peer)
        #expect(!link.client.isSecure)
        switch moment {
        case .sameSegment, .nextSegment:
            #expect(error.code == .earlyPlaintext)
            #expect(error.namesEarlyBytes(upTo: Self.injected.count))
        case .late:
            #expect(error.tls?.code == .notTLS)
        }
    }

    /// The bytes arrive during the callback that starts the upgrade. They are in the kernel, but no event has
    /// been reported.
    @Test func bytesThatNoEventHasToldOfAreFoundAtTheUpgrade() async throws {
        let listener = try RawSocket.listening()
        let peer = Locked<RawSocket?>(nil)
        let recorder = Recorder { socket, told in
            guard case .read = told else { return }
            #expect(throws: Never.self) {
                try peer.withLock { try $0?.send("250 injected\r\n") }
                try socket.beginTLS(settings: TestCertificates.client())
            }
            socket.readData(withTimeout: .patient, tag: 2)
        }
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toAddress: listener.localAddress, withTimeout: .patient)
        try await recorder.connected()
        let accepted = try listener.accepted()
        peer.withLock { $0 = accepted }
        client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        try accepted.send("220 go\r\n")
        #expect(try await recorder.readText() == "220 go\r\n")
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .earlyPlaintext)
        #expect(error.namesEarlyBytes(upTo: Self.injected.count))
    }

    /// The upgrade waits for a write, and nothing is read meanwhile. Bytes that arrive then are still in the
    /// kernel when the handshake starts.
    @Test func bytesThatComeWhileTheUpgradeWaitsAreFoundAtItsBeginning() async throws {
        let listener = try RawSocket.listening()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toAddress: listener.localAddress, withTimeout: .patient)
        try await recorder.connected()
        let peer = try listener.accepted()
        // More than the kernel buffers of both sides hold.
        let count = 64 << 20
        client.write(Data(count: count), withTimeout: .patient, tag: 0)
        try client.beginTLS(settings: TestCertificates.client())
        try peer.send("250 injected\r\n")
        _ = try await Task.detached { try peer.receive(atLeast: count) }.value
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .earlyPlaintext)
        #expect(error.namesEarlyBytes(upTo: Self.injected.count))
    }

    @Test func aClientThatFeedsEarlyBytesToTLSFailsTheHandshake() async throws {
        let link = try await Link.make()
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        link.server.write(Data("220 go\r\n") + Self.injected, withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "220 go\r\n")
        var settings = try TestCertificates.client()
        settings.earlyPlaintext = .feedToTLS
        try link.client.beginTLS(settings: settings)
        link.client.readData(withTimeout: .patient, tag: 2)
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.tls?.code == .notTLS)
        #expect(error.fault == .peer)
    }

    @Test(arguments: Moment.allCases, Link.Delivery.allCases)
    func aCommandInjectedIntoAServerIsNeverDelivered(_ moment: Moment, _ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        let evil = Data("MAIL FROM:<evil>\r\n")
        let command = Data("STARTTLS\r\n")
        link.client.write(moment == .sameSegment ? command + evil : command, withTimeout: .patient, tag: 0)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "STARTTLS\r\n")
        if moment == .nextSegment { link.client.write(evil, withTimeout: .patient, tag: 1) }
        link.server.write(Data("220 go\r\n"), withTimeout: .patient, tag: 1)
        try link.server.beginTLS(settings: TestCertificates.server())
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 2)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "220 go\r\n")
        if moment == .late { link.client.write(evil, withTimeout: .patient, tag: 1) }
        let error = try #require(try await link.atServer.disconnected())
        #expect(error.tls?.code == .notTLS)
        #expect(error.fault == .peer)
    }

    /// The attacker sends a command, followed by the victim's own handshake.
    @Test func aCommandInjectedBeforeARealHandshakeIsNeverDelivered() async throws {
        let link = try await Link.make()
        link.client.write(Data("STARTTLS\r\nRCPT TO:<evil>\r\n"), withTimeout: .patient, tag: 0)
        try link.client.beginTLS(settings: TestCertificates.client())
        link.client.write(Data("DATA\r\n"), withTimeout: .patient, tag: 1)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "STARTTLS\r\n")
        try link.server.beginTLS(settings: TestCertificates.server())
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.disconnected()?.tls?.code == .notTLS)
        let atClient = try #require(try await link.atClient.disconnected())
        #expect(atClient.fault == .peer)
    }
}

import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Plaintext that an attacker slips in around the STARTTLS exchange. `Recorder.disconnected()` fails the test
/// when data is delivered.
@Suite(.timeLimit(.patient)) struct InjectionTests {
    /// When the injected bytes come.
    enum Moment: CaseIterable, Sendable {
        /// In one segment with the last line of plaintext.
        case sameSegment
        /// In a segment of their own, before the upgrade begins.
        case nextSegment
        /// After the handshake has begun.
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

    // The attacker is a plain socket of ours at the other end. It does not speak TLS: the connection must end
    // before that.

    @Test(arguments: Moment.allCases, Link.Delivery.allCases)
    func aResponseInjectedIntoAClientIsNeverDelivered(_ moment: Moment, _ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.client.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 0)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        let reply = Data("220 go\r\n")
        link.server.write(moment == .sameSegment ? reply + Self.injected : reply, withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "220 go\r\n")
        if moment == .nextSegment { link.server.write(Self.injected, withTimeout: .patient, tag: 1) }
        // A write may leave in several pieces: wait for the last of them.
        for _ in 0..<moment.writesBeforeUpgrade { _ = try await link.atServer.wrote() }
        // The injected bytes are in our kernel's buffer now. A read from before the upgrade would get them; a
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

    /// The bytes come in the callback that asks for the upgrade: they are in the kernel, and no event has
    /// announced them.
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

    /// The upgrade waits for a write, and nothing is read meanwhile: what comes then is still in the kernel
    /// when the handshake begins.
    @Test func bytesThatComeWhileTheUpgradeWaitsAreFoundAtItsBeginning() async throws {
        let listener = try RawSocket.listening()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toAddress: listener.localAddress, withTimeout: .patient)
        try await recorder.connected()
        let peer = try listener.accepted()
        // More than the kernels of both sides take.
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

    /// The attacker sends a command and lets the victim's own handshake follow it.
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

import AsyncSocketsTesting
import SocketTestSupport
import Testing

@testable import SocketTLS

/// DTLS handshakes in memory.
struct DTLSHandshakeTests {
    @Test func bothSidesAgree() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client.applicationProtocols = ["coap", "other"]
        fixture.server.applicationProtocols = ["other"]
        let pair = try DatagramPair(fixture)
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        for end in [pair.client, pair.server] {
            let session = try #require(end.engine.session)
            #expect(session.protocolVersion == .dtls12 && "\(session.protocolVersion)" == "DTLSv1.2")
            #expect(session.applicationProtocol == "other" && session.group == "x25519")
        }
        let exported = try [pair.client, pair.server].map {
            try $0.engine.exporter.keyingMaterial(label: "EXPERIMENTAL", context: nil, length: 32)
        }
        let bound = try [pair.client, pair.server].map { try $0.engine.exporter.channelBinding(.tlsUnique) }
        #expect(exported[0] == exported[1] && bound[0] == bound[1])
    }

    @Test func aServerWithoutTrustIsRefusedWithAnAlert() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client.trustRoots = try Fixture.stranger.roots
        let pair = try DatagramPair(fixture)
        pair.shakeHands()
        #expect(pair.client.error?.code == .unknownIssuer && pair.client.error?.sentAlert == .unknownCA)
        #expect(pair.server.error?.alert == .unknownCA)
    }

    @Test func aServerWithAnotherNameIsRefused() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client = try fixture.authority.clientSettings(serverName: "other.example.org")
        let pair = try DatagramPair(fixture)
        pair.shakeHands()
        #expect(pair.client.error?.code == .hostNameMismatch)
        #expect(!pair.client.engine.isEstablished)
    }

    @Test func aClientWaitsForItsVerdictWhileMessagesAreSentAgain() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client.trustEvaluation = .delegate
        let pair = try DatagramPair(fixture)
        pair.shakeHands(waits: false)
        #expect(pair.client.questions.count == 1 && pair.client.engine.isAwaitingTrust)
        let count = pair.server.sent.count
        _ = try pair.server.flightAfterTimeout()
        #expect(pair.server.sent.count > count)
        #expect(!pair.client.engine.isEstablished && !pair.server.engine.isEstablished)
        pair.client.engine.decideTrust(true)
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete && pair.client.questions.count == 1)
    }

    @Test func aClientThatSaysNoSendsAnAlert() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client.trustEvaluation = .delegate
        let pair = try DatagramPair(fixture)
        pair.client.decide = { _ in false }
        pair.shakeHands()
        #expect(pair.client.error?.code == .trustRejected && pair.server.error?.alert == .badCertificate)
    }

    @Test(arguments: [true, false]) func aServerWaitsForItsVerdictAndLetsNothingThrough(_ isAccepted: Bool) throws {
        var fixture = try Fixture.forDatagrams()
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        fixture.server.trustEvaluation = .delegate
        let pair = try DatagramPair(fixture)
        pair.shakeHands(waits: false)
        #expect(pair.server.questions.count == 1 && !pair.client.engine.isEstablished)
        _ = try pair.server.flightAfterTimeout()
        pair.shakeHands(waits: false)
        #expect(!pair.client.engine.isEstablished && !pair.server.engine.isEstablished)
        pair.server.engine.decideTrust(isAccepted)
        pair.shakeHands()
        #expect(pair.client.isComplete == isAccepted && pair.server.isComplete == isAccepted)
        if isAccepted {
            #expect(pair.server.engine.session?.peerCertificates.first?.displayName == "alice")
        } else {
            #expect(pair.server.error?.code == .trustRejected && pair.client.error?.alert == .badCertificate)
        }
    }

    @Test func aClientWithoutACertificateIsRefusedWhereOneIsRequired() throws {
        var fixture = try Fixture.forDatagrams()
        try fixture.askForClientCertificate()
        let pair = try DatagramPair(fixture)
        pair.shakeHands()
        #expect(pair.server.error?.code == .clientCertificateMissing)
        #expect(!pair.client.engine.isEstablished && pair.client.error != nil)
    }

    @Test func messagesOfAHandshakeAreCutToTheSizeOfThePath() throws {
        var fixture = try Fixture.forDatagrams()
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        for size in [256, 400, 1400] {
            let pair = try DatagramPair(fixture, size: size)
            pair.shakeHands()
            #expect(pair.client.isComplete && pair.server.isComplete)
            #expect((pair.client.sent + pair.server.sent).allSatisfy { $0.count <= size })
        }
    }

    @Test func aPreSharedKeyProvesBothSides() throws {
        let keys = try PreSharedKeyFixture(.dtls12)
        var fixture = try Fixture.forDatagrams()
        (fixture.client, fixture.server) = (keys.client, keys.server)
        let pair = try DatagramPair(fixture)
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        #expect(pair.server.engine.session?.preSharedKeyIdentity == Array("alice".utf8))
        let wrong = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.otherBytes)
        fixture.client = .client(serverName: Fixture.host, preSharedKey: wrong)
        fixture.client.minimumVersion = .dtls12
        let refused = try DatagramPair(fixture)
        // Data encrypted with a wrong key is dropped like any other forged record.
        refused.shakeHands(within: .milliseconds(200))
        #expect(!refused.client.engine.isEstablished && !refused.server.engine.isEstablished)
        #expect(refused.client.error != nil && refused.server.error != nil)
    }

    @Test func aSessionIsResumedOnlyByDTLS() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.server.sessionTickets = .issued(1)
        let first = try DatagramPair(fixture)
        first.shakeHands()
        let session = try #require(first.client.engine.session?.resumable)
        fixture.client.resumption = .session(session)
        let second = try DatagramPair(fixture)
        second.shakeHands()
        #expect(second.client.engine.session?.isResumed == true && second.server.engine.session?.isResumed == true)
        var stream = fixture
        stream.useOnly(.tls12)
        let pair = try? stream.pair()
        pair?.shakeHands()
        #expect(pair?.client.session?.isResumed != true)
    }

    @Test(arguments: ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-CCM"])
    func aServerThatRefusesAResumedSessionSendsAnAlert(suite: String) throws {
        var fixture = try Fixture.forDatagrams()
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        fixture.server.values.tickets = .issued(1)
        fixture.server.trustEvaluation = .delegate
        fixture.client.policy.cipherSuites = [suite]
        fixture.server.policy.cipherSuites = [suite]
        let first = try DatagramPair(fixture)
        first.server.decide = { _ in true }
        first.shakeHands()
        fixture.client.resumption = .session(try #require(first.client.engine.session?.resumable))
        let second = try DatagramPair(fixture)
        second.server.decide = { _ in false }
        second.shakeHands()
        #expect(second.server.questions.count == 1 && second.server.engine.session == nil)
        #expect(second.server.error?.code == .trustRejected && second.server.error?.sentAlert == .badCertificate)
        guard case .failed(let error)? = second.client.end else {
            Issue.record("the client received no alert")
            return
        }
        #expect(error.alert == .badCertificate)
    }

    @Test func aHandshakeThatIsGivenUpSaysSo() throws {
        let fixture = try Fixture.forDatagrams()
        let pair = try DatagramPair(fixture)
        pair.client.shakeHands()
        pair.carry()
        pair.server.shakeHands()
        pair.client.engine.abandonHandshake()
        pair.shakeHands()
        #expect(pair.client.error?.code == .closedDuringHandshake)
        #expect(pair.server.error?.alert == .userCanceled)
    }

    @Test func settingsThatDTLSCannotHaveAreRefused() throws {
        let fixture = try Fixture.forDatagrams()
        func refusal(_ change: (inout Fixture) throws -> Void, _ side: Side) -> TLSError? {
            var changed = fixture
            do {
                try change(&changed)
                _ = try changed.datagramEngine(side)
                return nil
            } catch {
                return error as? TLSError
            }
        }
        var newer = try Fixture().server
        newer.minimumVersion = .tls13
        let named = newer
        let refusals = [
            ("minimumVersion", refusal({ $0.useOnly(.tls13) }, .client)),
            ("the policy", refusal({ $0.client.policy = .modern }, .client)),
            ("earlyData", refusal({ $0.client.earlyData = TLSEarlyData([1]) }, .client)),
            ("allowsPostHandshakeAuthentication", refusal({ $0.client.allowsPostHandshakeAuthentication = true }, .client)),
            (".certificatesOnRequest", refusal({ $0.server.clients = .certificatesOnRequest() }, .server)),
            ("acceptedEarlyData", refusal({ $0.server.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 100) }, .server)),
            ("minimumVersion", refusal({ $0.server.serverNames = try TLSServerNames(["a.example": named]) }, .server)),
        ]
        for (name, refusal) in refusals {
            #expect(refusal?.code == .invalidSettings && refusal?.fault == .caller)
            #expect(refusal?.message.contains(name) == true, "\(name): \(refusal?.message ?? "")")
        }
        #expect(throws: TLSError.self) { try fixture.pair() }
    }
}

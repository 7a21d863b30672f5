import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import Testing

/// Servers that request client certificates after the handshake (RFC 8446, 4.6.2).
@Suite struct ClientAuthenticationTests {
    private var fixture: Fixture

    init() throws {
        fixture = try Fixture(.tls13)
        try fixture.askForClientCertificate(.onRequest)
        try fixture.showClientCertificate()
        fixture.client.allowsPostHandshakeAuthentication = true
    }

    private func connected(_ change: (inout Fixture) throws -> Void = { _ in }) throws -> EnginePair {
        var fixture = fixture
        try change(&fixture)
        let pair = try fixture.pair()
        pair.shakeHands()
        guard pair.isComplete else { throw TestFailure(what: "handshake: \(String(describing: pair.serverError))") }
        #expect(pair.server.session?.peerCertificates.isEmpty == true)
        return pair
    }

    /// Requests a certificate, and transfers the request, the client's data and its response. The server has
    /// not read yet.
    private func ask(_ pair: EnginePair, isRequired: Bool = true, asks: Bool = false) throws {
        _ = try pair.server.requestClientCertificate(isRequired: isRequired, asks: asks)
        pair.carryAll()
        _ = pair.client.write("before ")
        #expect(pair.client.readAll().end.isIncomplete)
        _ = pair.client.write("after")
        pair.carryAll()
    }

    private func name(_ session: TLSSession?) -> String? {
        session?.peerCertificates.first?.subject.contains("alice") == true ? "alice" : nil
    }

    /// The client's Certificate has arrived, but its Finished never will, so nothing can be written any more.
    @Test func aClientThatEndsInTheMiddleOfItsAnswerEndsTheConnection() throws {
        let pair = try connected()
        _ = try pair.server.requestClientCertificate(isRequired: true)
        pair.carryAll()
        #expect(pair.client.readAll().end.isIncomplete)
        let answer = Array(pair.client.output.readableBytes)
        let firstRecord = 5 + Int(answer[3]) << 8 + Int(answer[4])
        try #require(firstRecord < answer.count)
        pair.server.receive(Array(answer[..<firstRecord]))
        #expect(pair.server.readAll().end.isIncomplete)
        #expect(pair.server.write("too early").isIncomplete)
        pair.server.receiveEndOfFile()
        #expect(pair.server.readAll().end.error?.code == .truncated)
        #expect(pair.server.write("too late").error?.code == .truncated)
    }

    // MARK: - Decisions

    @Test func aClientIsKnownWhenItWasAsked() throws {
        let pair = try connected()
        let exported = try pair.server.exporter.keyingMaterial(label: "EXPERIMENTAL", context: nil, length: 16)
        for _ in 0..<3 {
            try ask(pair)
            #expect(pair.server.isAwaitingClient && !pair.server.isAuthenticatingClient)
            // Data before the response is delivered, and data after it waits.
            let (text, end) = pair.server.readAll()
            #expect(text == "before " && end.isIncomplete)
            #expect(pair.server.isAuthenticatingClient && !pair.server.isAwaitingClient)
            #expect(pair.server.write("early").isIncomplete && !pair.server.hasOutput)
            #expect(pair.server.handshake().isComplete)
            #expect(name(pair.server.session) == "alice")
            #expect(pair.server.readAll().text == "after")
            #expect(pair.server.write("welcome").accepted == 7)
            pair.carryAll()
            #expect(pair.client.readAll().text == "welcome")
        }
        #expect(try pair.server.exporter.keyingMaterial(label: "EXPERIMENTAL", context: nil, length: 16) == exported)
        #expect(try pair.client.exporter.keyingMaterial(label: "EXPERIMENTAL", context: nil, length: 16) == exported)
    }

    @Test(arguments: [TLSTrustEvaluation.delegate, .manual, .builtIn])
    func aDecisionAdmitsOrRefuses(_ evaluation: TLSTrustEvaluation) throws {
        for isAccepted in [true, false] {
            let pair = try connected { $0.server.trustEvaluation = evaluation }
            try ask(pair, asks: evaluation == .builtIn)
            #expect(pair.server.readAll().text == "before ")
            guard case .awaitingTrust(let trust) = pair.server.handshake() else { throw TestFailure(what: "question") }
            #expect(trust.peer == .client && trust.verdict == .trusted && trust.leaf?.subject.contains("alice") == true)
            // No data is transferred until the decision.
            #expect(pair.server.handshake().isIncomplete)
            #expect(pair.server.write("early").isIncomplete && pair.server.readAll().text.isEmpty && !pair.server.hasOutput)
            pair.server.decideTrust(isAccepted)
            let answer = pair.server.handshake()
            if isAccepted {
                #expect(answer.isComplete && pair.server.readAll().text == "after")
                #expect(pair.server.write("welcome").accepted == 7)
                continue
            }
            #expect(answer.error?.code == .trustRejected && answer.error?.sentAlert == .badCertificate)
            #expect(pair.server.readAll().text.isEmpty && pair.server.write("x").error?.code == .trustRejected)
            pair.carryAll()
            #expect(pair.client.readAll().end.error?.alert == .badCertificate)
        }
    }

    @Test func aDecisionThatDoesNotComeIsANo() throws {
        let pair = try connected { $0.server.trustEvaluation = .delegate }
        try ask(pair)
        _ = pair.server.readAll()
        guard case .awaitingTrust = pair.server.handshake() else { throw TestFailure(what: "question") }
        pair.server.abandonHandshake()
        #expect(pair.server.handshake().error?.code == .trustTimeout)
        pair.carryAll()
        #expect(pair.client.readAll().end.error?.alert == .badCertificate)
    }

    @Test func openSSLRefusesAStranger() throws {
        for evaluation in [TLSTrustEvaluation.builtIn, .delegate, .manual] {
            let pair = try connected {
                $0.client.identity = try Fixture.stranger.identity(.client(commonName: "mallory"))
                $0.server.trustEvaluation = evaluation
            }
            try ask(pair, isRequired: false)
            let (text, end) = pair.server.readAll()
            #expect(text == "before ")
            if evaluation == .manual {
                #expect(end.isIncomplete)
                guard case .awaitingTrust(let trust) = pair.server.handshake() else { throw TestFailure(what: "question") }
                #expect(trust.verdict != .trusted)
                pair.server.decideTrust(true)
                #expect(pair.server.handshake().isComplete && pair.server.readAll().text == "after")
                continue
            }
            #expect(end.error?.code == .unknownIssuer && end.error?.sentAlert == .unknownCA)
            pair.carryAll()
            #expect(pair.client.readAll().end.error?.alert == .unknownCA)
        }
    }

    @Test(arguments: [true, false]) func aClientMayHaveNoCertificate(isRequired: Bool) throws {
        let pair = try connected {
            $0.client.identity = nil
            $0.server.trustEvaluation = .manual
        }
        try ask(pair, isRequired: isRequired)
        let (text, end) = pair.server.readAll()
        #expect(text == "before ")
        guard isRequired else {
            // The callback is not called without a certificate.
            #expect(end.isIncomplete && pair.server.handshake().isComplete)
            #expect(pair.server.session?.peerCertificates.isEmpty == true && pair.server.readAll().text == "after")
            return
        }
        #expect(end.error?.code == .clientCertificateMissing && end.error?.sentAlert == .certificateRequired)
        pair.carryAll()
        #expect(pair.client.readAll().end.error?.alert == .certificateRequired)
    }

    @Test func aQuestionIsForOneRequestOnly() throws {
        let pair = try connected()
        for asks in [true, false, true] {
            #expect(!pair.server.asksAboutClients)
            try ask(pair, asks: asks)
            _ = pair.server.readAll()
            let answer = pair.server.handshake()
            #expect(answer.isComplete != asks)
            pair.server.decideTrust(true)
            #expect(pair.server.handshake().isComplete && pair.server.readAll().text == "after")
        }
    }

    @Test func anAnswerBehindDataIsNotForgotten() throws {
        let pair = try connected()
        _ = try pair.server.requestClientCertificate(isRequired: true)
        pair.carryAll()
        _ = pair.client.write("before")
        _ = pair.client.readAll()
        pair.carryAll()
        let buffer = PreBuffer()
        guard case .bytes(6) = pair.server.read(into: buffer, limit: 100) else { throw TestFailure(what: "data") }
        #expect(pair.server.mayHaveAnswer && pair.server.isAuthenticatingClient && pair.server.received.isEmpty)
        #expect(pair.server.handshake().isComplete && !pair.server.mayHaveAnswer)
        buffer.reset()
    }

    @Test func eachCertificateIsJudgedByItself() throws {
        let pair = try connected { $0.server.trustEvaluation = .delegate }
        for isAccepted in [true, true, false] {
            try ask(pair)
            _ = pair.server.readAll()
            guard case .awaitingTrust = pair.server.handshake() else { throw TestFailure(what: "question") }
            pair.server.decideTrust(isAccepted)
            #expect(pair.server.handshake().isComplete == isAccepted)
            _ = pair.server.readAll()
        }
    }

    @Test func limitsOfChainsHold() throws {
        let pair = try connected {
            $0.server.maximumCertificateChainLength = 1
            $0.client.identity = try $0.authority.issue(.client(commonName: "alice"), signedBy: .intermediate).identity()
            $0.server.trustEvaluation = .manual
        }
        try ask(pair)
        #expect(pair.server.readAll().end.error?.code == .certificateTooLarge)
    }

    // MARK: - Invalid requests

    @Test func onlyOneRequestIsOutstanding() throws {
        let pair = try connected()
        _ = try pair.server.requestClientCertificate(isRequired: true)
        let error = #expect(throws: TLSError.self) { _ = try pair.server.requestClientCertificate(isRequired: false) }
        #expect(error?.code == .certificateRequestPending && error?.fault == .caller)
        // The first one continues unchanged.
        pair.carryAll()
        _ = pair.client.readAll()
        pair.carryAll()
        #expect(pair.server.readAll().end.isIncomplete && pair.server.handshake().isComplete)
        #expect(name(pair.server.session) == "alice")
    }

    private func expectNoHarm(_ code: TLSError.Code, to pair: EnginePair) {
        let error = #expect(throws: TLSError.self) { _ = try pair.server.requestClientCertificate(isRequired: true) }
        if code == .invalidSettings { #expect(error?.message.contains("clients is not .certificatesOnRequest") == true) }
        #expect(error?.code == code && !pair.server.hasOutput && !pair.server.isAwaitingClient)
        #expect(pair.server.write("still here").accepted == 10 && pair.client.write("me too").accepted == 6)
        pair.carryAll()
        #expect(pair.client.readAll().text == "still here" && pair.server.readAll().text == "me too")
    }

    @Test func whoCannotBeAskedIsNotHarmed() throws {
        expectNoHarm(
            .postHandshakeAuthenticationUnavailable, to: try connected { $0.client.allowsPostHandshakeAuthentication = false })
        expectNoHarm(.postHandshakeAuthenticationUnavailable, to: try connected { $0.useOnly(.tls12) })
        expectNoHarm(.invalidSettings, to: try connected { $0.server.values.clientCertificates = .none })
        let pair = try fixture.pair()
        #expect(throws: TLSError.self) { _ = try pair.server.requestClientCertificate(isRequired: true) }
        #expect(throws: TLSError.self) { _ = try pair.client.requestClientCertificate(isRequired: true) }
        pair.shakeHands()
        #expect(pair.isComplete)
        expectNoHarm(
            .postHandshakeAuthenticationUnavailable, to: try connected { $0.client.allowsPostHandshakeAuthentication = false })
    }

    @Test(arguments: [true, false]) func theNameDecidesWhoCanBeAsked(isNamed: Bool) throws {
        let pair = try connected { fixture in
            var named = fixture.server
            if !isNamed { named.values.clientCertificates = .none }
            fixture.server.values.clientCertificates = isNamed ? .none : .onRequest
            // The trust callback of the outer settings also applies to a server name.
            fixture.server.trustEvaluation = .delegate
            fixture.server.serverNames = try TLSServerNames([Fixture.host: named])
        }
        guard isNamed else { return expectNoHarm(.invalidSettings, to: pair) }
        try ask(pair)
        #expect(pair.server.readAll().text == "before ")
        guard case .awaitingTrust = pair.server.handshake() else { throw TestFailure(what: "question") }
        pair.server.decideTrust(true)
        #expect(pair.server.handshake().isComplete && name(pair.server.session) == "alice")
    }

    // MARK: - Timing

    @Test func aClientThatDoesNotAnswerIsGivenUp() throws {
        let pair = try connected()
        _ = try pair.server.requestClientCertificate(isRequired: false)
        // Data is still transferred meanwhile.
        #expect(pair.server.write("well?").accepted == 5 && pair.client.write("wait").accepted == 4)
        pair.carryAll()
        #expect(pair.server.readAll().text == "wait" && pair.server.isAwaitingClient)
        pair.server.abandonHandshake()
        #expect(pair.server.write("x").error?.code == .clientCertificateMissing)
        #expect(pair.server.write("x").error?.sentAlert == .certificateRequired)
        pair.carryAll()
        let (text, end) = pair.client.readAll()
        #expect(text == "well?" && end.error?.alert == .certificateRequired)
    }

    @Test func theAnswerMayComeInPieces() throws {
        let pair = try connected { $0.server.trustEvaluation = .delegate }
        _ = try pair.server.requestClientCertificate(isRequired: true)
        pair.carryAll()
        #expect(pair.client.readAll().end.isIncomplete)
        _ = pair.client.write("after")
        let answer = Array(pair.client.output.readableBytes)
        pair.client.output.reset()
        var writes = 0
        for byte in answer {
            // Whatever part of the response has arrived, a write is neither sent before it nor completes it.
            pair.server.receive([byte])
            if pair.server.write("w").accepted == 1 { writes += 1 }
            #expect(pair.server.readAll().text.isEmpty)
        }
        #expect(pair.server.isAuthenticatingClient && writes > 0 && writes < answer.count)
        guard case .awaitingTrust = pair.server.handshake() else { throw TestFailure(what: "question") }
        pair.server.decideTrust(true)
        #expect(pair.server.handshake().isComplete && pair.server.readAll().text == "after")
        pair.carryAll()
        #expect(pair.client.readAll().text == String(repeating: "w", count: writes))
    }

    @Test func aWriteDoesNotReadTheAnswer() throws {
        let pair = try connected { $0.server.trustEvaluation = .delegate }
        _ = try pair.server.requestClientCertificate(isRequired: true)
        pair.carryAll()
        #expect(pair.client.readAll().end.isIncomplete)
        let answer = Array(pair.client.output.readableBytes)
        pair.server.receive(Array(answer.dropLast(10)))
        #expect(pair.server.readAll().end.isIncomplete)
        pair.server.receive(Array(answer.suffix(10)))
        #expect(pair.server.write("secret").isIncomplete && !pair.server.hasOutput)
        #expect(pair.server.readAll().end.isIncomplete && pair.server.isAuthenticatingClient)
        #expect(pair.server.write("secret").isIncomplete && !pair.server.hasOutput)
    }

    @Test func aRequestWaitsForTheRestOfAMessage() throws {
        let issued = try fixture.authority.issue(.client(commonName: "alice"), signedBy: .root)
        let peer = try RawPeer(.tls13, clientPEM: issued.pem)
        SSL_set_post_handshake_auth(peer.ssl, 1)
        let server = try fixture.engine(.server)
        peer.shakeHands(with: server)
        #expect(server.handshake().isComplete)
        peer.sendKeyUpdate()
        let update = peer.takeOutput()
        server.receive(Array(update.dropLast(3)))
        #expect(server.readAll().end.isIncomplete)
        _ = try server.requestClientCertificate(isRequired: true)
        #expect(server.isAwaitingClient)
        server.receive(Array(update.suffix(3)))
        #expect(server.readAll().end.isIncomplete)
        server.sendDelayedRequest()
        peer.carryFrom(server)
        #expect(peer.read() == nil)
        peer.carryTo(server)
        #expect(server.readAll().end.isIncomplete && server.isAuthenticatingClient)
        #expect(server.handshake().isComplete && name(server.session) == "alice")
    }

    // MARK: - Tickets

    @Test func ticketsLeaveBeforeTheFirstRequest() throws {
        var fixture = fixture
        fixture.server.values.tickets = .issued(2)
        fixture.client.resumption = .store(TLSInMemorySessionStore())
        let pair = try fixture.pair()
        pair.shakeHands()
        try ask(pair)
        _ = pair.server.readAll()
        #expect(pair.server.handshake().isComplete && pair.server.session?.peerCertificates.isEmpty == false)
        fixture.client.resumption = .session(try #require(pair.client.session?.resumable))
        let before = pair.server.output.count
        _ = pair.server.write("x")
        // One record without a ticket before it.
        #expect(pair.server.output.count - before < 100)
        // The resumed session has no client certificate, which can be requested again.
        let resumed = try fixture.pair()
        resumed.shakeHands()
        #expect(resumed.isComplete && resumed.server.session?.isResumed == true)
        #expect(resumed.server.session?.peerCertificates.isEmpty == true)
        try ask(resumed)
        _ = resumed.server.readAll()
        #expect(resumed.server.handshake().isComplete && name(resumed.server.session) == "alice")
    }
}

import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import Testing

@Suite struct ClientTrustTests {
    @Test(arguments: versions)
    func aCallbackThatSaysYesLetsTheHandshakeGoOn(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isComplete)
        let question = try #require(pair.clientQuestions.first)
        #expect(pair.clientQuestions.count == 1)
        #expect(question.peer == .server)
        #expect(question.verdict == .trusted)
        #expect(question.serverName == Fixture.host)
        #expect(question.leaf?.commonName == Fixture.host)
    }

    @Test(arguments: versions)
    func aCallbackThatSaysNoEndsTheHandshakeWithAnAlert(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in false }
        pair.shakeHands()
        #expect(pair.clientError?.code == .trustRejected)
        #expect(pair.clientError?.sentAlert == .badCertificate)
        #expect(pair.clientError?.message == "the trust callback rejected the certificate of \"mail.example.org\"")
        #expect(pair.serverError?.alert == .badCertificate)
    }

    @Test(arguments: versions)
    func aCallbackThatMayOnlyNarrowIsNotAskedAboutAnUntrustedServer(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version, purpose: .server(names: ["other.example.org"]))
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.clientQuestions.isEmpty)
        #expect(pair.clientError?.code == .hostNameMismatch)
        #expect(pair.serverError?.code == .peerAlert)
    }

    @Test(arguments: versions)
    func aManualCallbackMayAcceptAnUntrustedServer(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustRoots = try Fixture.stranger.roots
        fixture.client.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isComplete)
        guard case .untrusted(let reason, let code, let depth) = try #require(pair.clientQuestions.first).verdict else {
            Issue.record("the verdict should be untrusted")
            return
        }
        #expect(reason.contains("Test Root"))
        #expect(code == 20)
        #expect(depth == 0)
    }

    @Test(arguments: versions)
    func aManualCallbackThatRefusesAnExpiredServerSendsItsAlert(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version, validity: .expired)
        fixture.client.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.decideClientTrust = { _ in false }
        pair.shakeHands()
        #expect(pair.clientError?.code == .trustRejected)
        #expect(pair.clientError?.verifyCode == 10)
        #expect(pair.serverError?.alert == .certificateExpired)
    }

    @Test(arguments: versions)
    func whileUndecidedTheClientSaysNothing(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.client.isAwaitingTrust)
        let waiting = pair.client.received.count
        #expect(pair.client.handshake().isIncomplete)
        #expect(pair.client.write("x").isIncomplete)
        #expect(pair.client.readAll().end.isIncomplete)
        #expect(pair.client.received.count == waiting)
        #expect(pair.client.output.isEmpty)
        pair.client.decideTrust(true)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.clientQuestions.count == 1)
    }

    @Test(arguments: versions)
    func aCallbackThatNeverAnswersTimesOut(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.shakeHands()
        pair.client.decideTrust(false, refusal: .timedOut)
        pair.shakeHands()
        #expect(pair.clientError?.code == .trustTimeout)
        #expect(pair.clientError?.fault == .caller)
        #expect(pair.serverError?.alert == .badCertificate)
    }

    /// The peer has disconnected meanwhile. The result is still the cause of the failed handshake.
    @Test(arguments: versions)
    func aNoAfterTheEndOfTheTransportIsARejection(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.shakeHands()
        try #require(pair.client.isAwaitingTrust)
        pair.client.receiveEndOfFile()
        #expect(pair.client.handshake().isIncomplete)
        pair.client.decideTrust(false)
        let error = pair.client.handshake().error
        #expect(error?.code == .trustRejected)
        #expect(error?.fault == .certificate)
    }

    /// The same on a server, for which OpenSSL does not give a reason.
    @Test(arguments: versions)
    func aServersNoAfterTheEndIsARejection(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        fixture.server.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.shakeHands()
        try #require(pair.server.isAwaitingTrust)
        pair.server.receiveEndOfFile()
        pair.server.decideTrust(false)
        #expect(pair.server.handshake().error?.code == .trustRejected)
    }

    @Test func aDecisionBeforeOrAfterTheQuestionIsIgnored() throws {
        var fixture = try Fixture()
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.client.decideTrust(true)
        pair.decideClientTrust = { _ in false }
        pair.shakeHands()
        pair.client.decideTrust(true)
        #expect(pair.client.handshake().error?.code == .trustRejected)
    }
}

@Suite struct ServerTrustTests {
    private func fixture(_ version: TLSProtocolVersion, _ evaluation: TLSTrustEvaluation = .delegate) throws -> Fixture {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        fixture.server.trustEvaluation = evaluation
        return fixture
    }

    @Test(arguments: versions, [1, Int.max])
    func aCallbackThatSaysYesLetsTheClientIn(version: TLSProtocolVersion, chunk: Int) throws {
        let pair = try fixture(version).pair(chunk: chunk)
        pair.decideServerTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.serverQuestions.count == 1)
        let question = try #require(pair.serverQuestions.first)
        #expect(question.peer == .client)
        #expect(question.serverName == nil)
        #expect(question.leaf?.commonName == "alice")
        #expect(pair.server.session?.peerCertificates.map(\.commonName) == ["alice"])
    }

    @Test(arguments: versions, [1, Int.max])
    func aCallbackThatSaysNoSendsARealAlert(version: TLSProtocolVersion, chunk: Int) throws {
        let pair = try fixture(version).pair(chunk: chunk)
        pair.decideServerTrust = { _ in false }
        pair.shakeHands()
        #expect(pair.serverError?.code == .trustRejected)
        #expect(pair.serverError?.sentAlert == .badCertificate)
        // A TLS 1.3 client completes its handshake before the server decides, and receives the alert when it
        // reads.
        let clientError = version == .tls13 ? pair.client.readAll().end.error : pair.clientError
        #expect(clientError?.code == .peerAlert)
        #expect(clientError?.alert == .badCertificate)
        #expect(pair.server.session == nil)
    }

    @Test(arguments: versions)
    func whileUndecidedNoDataGoesUpOrDown(version: TLSProtocolVersion) throws {
        let pair = try fixture(version).pair()
        pair.shakeHands()
        #expect(pair.server.isAwaitingTrust)
        // With TLS 1.2, the client waits for the server's Finished. With TLS 1.3, its handshake is already
        // complete.
        #expect(pair.client.handshake().isComplete == (version == .tls13))
        _ = pair.client.write("early")
        pair.carryAll()
        #expect(pair.server.handshake().isIncomplete)
        #expect(pair.server.readAll().text.isEmpty)
        #expect(pair.server.write("no").isIncomplete)
        #expect(pair.server.session == nil)
        #expect(pair.server.output.isEmpty)
        pair.server.decideTrust(true)
        pair.shakeHands()
        #expect(pair.isComplete)
        if version == .tls13 { #expect(pair.server.readAll().text == "early") }
    }

    @Test(arguments: versions)
    func heldDataIsNeverDeliveredAfterANo(version: TLSProtocolVersion) throws {
        let pair = try fixture(version).pair()
        pair.shakeHands()
        _ = pair.client.write("early")
        pair.carryAll()
        pair.server.decideTrust(false)
        pair.shakeHands()
        let (text, end) = pair.server.readAll()
        #expect(text.isEmpty)
        #expect(end.error?.code == .trustRejected)
        #expect(pair.server.write("no").error?.code == .trustRejected)
    }

    @Test(arguments: versions)
    func aCallbackThatMayOnlyNarrowIsNotAskedAboutAnUntrustedClient(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version)
        fixture.client.identity = try Fixture.stranger.identity(.client(commonName: "mallory"))
        let pair = try fixture.pair()
        pair.decideServerTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.serverQuestions.isEmpty)
        #expect(pair.serverError?.code == .unknownIssuer)
    }

    @Test(arguments: versions)
    func aManualCallbackMayAcceptAnUntrustedClient(version: TLSProtocolVersion) throws {
        var fixture = try fixture(version, .manual)
        fixture.client.identity = try Fixture.stranger.identity(.client(commonName: "mallory"))
        let pair = try fixture.pair()
        pair.decideServerTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.serverQuestions.first?.verdict != .trusted)
    }

    @Test(arguments: versions)
    func noOneIsAskedAboutAClientWithoutACertificate(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate(.optional)
        fixture.server.trustEvaluation = .manual
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.serverQuestions.isEmpty)
    }

    @Test(arguments: versions)
    func theEndOfTheTransportWhileUndecidedIsReportedAfterTheDecision(version: TLSProtocolVersion) throws {
        let pair = try fixture(version).pair()
        pair.shakeHands()
        pair.server.receiveEndOfFile()
        #expect(pair.server.handshake().isIncomplete)
        pair.server.decideTrust(true)
        let handshake = pair.server.handshake()
        let error = version == .tls13 ? pair.server.readAll().end.error : handshake.error
        // With TLS 1.2, the client's Finished had already arrived, so the handshake completes, and only the
        // data is truncated.
        #expect((error ?? pair.server.readAll().end.error)?.code == .truncated)
    }
}

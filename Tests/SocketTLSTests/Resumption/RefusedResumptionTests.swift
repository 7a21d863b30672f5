import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import Testing

/// A side rejects its peer although a session is resumed. The other side receives an alert.
@Suite struct RefusedResumptionTests {
    /// The settings of both sides and a session between them.
    private struct Acquaintance {
        var fixture: Fixture

        init(_ version: TLSProtocolVersion, _ change: (inout Fixture) throws -> Void) throws {
            fixture = try Fixture(version)
            fixture.server.values.tickets = .issued(1)
            try change(&fixture)
            let pair = try fixture.pair()
            (pair.decideClientTrust, pair.decideServerTrust) = ({ _ in true }, { _ in true })
            pair.shakeHands()
            _ = pair.server.write("!")
            pair.carryAll()
            guard pair.isComplete, pair.client.readAll().text == "!", let session = pair.client.session?.resumable else {
                throw TestFailure(what: "session: \(String(describing: pair.serverError))")
            }
            fixture.client.resumption = .session(session)
        }

        func pair(chunk: Int = .max) throws -> EnginePair { try fixture.pair(chunk: chunk) }
    }

    // MARK: - A client

    private static let evaluations: [TLSTrustEvaluation] = [.delegate, .manual]

    @Test(arguments: versions, [1, Int.max]) func aClientThatRefusesSendsAnAlert(version: TLSProtocolVersion, chunk: Int) throws {
        for evaluation in Self.evaluations {
            let pair = try Acquaintance(version) { $0.client.trustEvaluation = evaluation }.pair(chunk: chunk)
            pair.decideClientTrust = { _ in false }
            pair.shakeHands()
            #expect(pair.clientError?.code == .trustRejected && pair.clientError?.sentAlert == .badCertificate)
            #expect(pair.serverError?.alert == .badCertificate, "\(pair.serverAnswer)")
            #expect(pair.clientQuestions.count == 1 && pair.server.session == nil && pair.client.session == nil)
        }
    }

    @Test(arguments: versions, [1, Int.max])
    func whileUndecidedAClientThatResumesSaysNothing(version: TLSProtocolVersion, chunk: Int) throws {
        for evaluation in Self.evaluations {
            let pair = try Acquaintance(version) { $0.client.trustEvaluation = evaluation }.pair(chunk: chunk)
            _ = pair.client.handshake()
            let hello = Array(pair.client.output.readableBytes)
            pair.shakeHands()
            #expect(pair.client.isAwaitingTrust && pair.original.fromClient == hello)
            #expect(!pair.server.handshake().isComplete && pair.client.session == nil)
            #expect(pair.client.write("early").isIncomplete && pair.client.handshake().isIncomplete)
            pair.client.decideTrust(true)
            pair.shakeHands()
            #expect(pair.isComplete && pair.clientQuestions.count == 1)
            #expect(pair.client.session?.isResumed == true && pair.server.session?.isResumed == true)
            #expect(try pair.exchange([1, 2, 3], from: .client) == [1, 2, 3])
        }
    }

    @Test(arguments: versions) func aDecisionThatDoesNotComeIsANo(_ version: TLSProtocolVersion) throws {
        let pair = try Acquaintance(version) { $0.client.trustEvaluation = .delegate }.pair()
        pair.shakeHands()
        try #require(pair.client.isAwaitingTrust)
        pair.client.abandonHandshake()
        pair.shakeHands()
        #expect(pair.clientError?.code == .trustTimeout && pair.serverError?.alert == .badCertificate)
    }

    /// The server must request another ClientHello first, which OpenSSL reports as a ServerHello.
    @Test(arguments: [true, false]) func aSecondHelloChangesNothing(isAccepted: Bool) throws {
        let pair = try Acquaintance(.tls13) {
            $0.client.trustEvaluation = .delegate
            $0.client.policy.groups = ["x25519", "secp256r1"]
            $0.server.policy.groups = ["secp256r1"]
        }.pair()
        pair.decideClientTrust = { _ in isAccepted }
        pair.shakeHands()
        #expect(pair.clientQuestions.count == 1 && pair.isComplete == isAccepted)
        #expect(pair.client.session?.isResumed == (isAccepted ? true : nil))
        if !isAccepted { #expect(pair.serverError?.alert == .badCertificate) }
    }

    @Test(arguments: versions, [1, Int.max])
    func aSessionThatIsNotTakenCostsOneQuestion(version: TLSProtocolVersion, chunk: Int) throws {
        for (evaluation, isAccepted) in [(TLSTrustEvaluation.delegate, true), (.manual, false)] {
            var acquaintance = try Acquaintance(version) { $0.client.trustEvaluation = evaluation }
            acquaintance.fixture.server.values.tickets = .none
            let pair = try acquaintance.pair(chunk: chunk)
            pair.decideClientTrust = { _ in isAccepted }
            pair.shakeHands()
            #expect(pair.clientQuestions.count == 1 && pair.isComplete == isAccepted)
            #expect(pair.client.session?.isResumed == (isAccepted ? false : nil))
            if !isAccepted { #expect(pair.serverError?.alert == .badCertificate) }
        }
    }

    /// OpenSSL has received all messages when the client stops.
    @Test(arguments: [true, false], [true, false])
    func messagesThatShareARecordChangeNothing(isTaken: Bool, isAccepted: Bool) throws {
        var acquaintance = try Acquaintance(.tls12) { $0.client.trustEvaluation = .delegate }
        if !isTaken { acquaintance.fixture.server.values.tickets = .none }
        let pair = try acquaintance.pair()
        pair.decideClientTrust = { _ in isAccepted }
        _ = pair.client.handshake()
        pair.carry()
        _ = pair.server.handshake()
        try joinMessages(of: pair.server.output)
        pair.shakeHands()
        #expect(pair.clientQuestions.count == 1 && pair.isComplete == isAccepted)
        #expect(pair.client.session?.isResumed == (isAccepted ? isTaken : nil))
        if !isAccepted { #expect(pair.serverError?.alert == .badCertificate) }
    }

    /// Joins the plaintext records into one.
    private func joinMessages(of output: PreBuffer) throws {
        var (rest, messages) = (Array(output.readableBytes)[...], [UInt8]())
        while let type = rest.first, type == 22 {
            let length = Int(rest[rest.startIndex + 3]) << 8 | Int(rest[rest.startIndex + 4])
            messages += rest.dropFirst(5).prefix(length)
            rest = rest.dropFirst(5 + length)
        }
        try #require(!messages.isEmpty && messages.count <= 16_384)
        let all = [22, 3, 3, UInt8(messages.count >> 8), UInt8(messages.count & 0xFF)] + messages + rest
        output.reset()
        all.withUnsafeBytes { output.append($0) }
    }

    // MARK: - A server

    private func clients(_ version: TLSProtocolVersion, _ change: (inout Fixture) -> Void = { _ in }) throws -> Acquaintance {
        try Acquaintance(version) {
            change(&$0)
            try $0.askForClientCertificate()
            try $0.showClientCertificate()
            $0.server.trustEvaluation = .delegate
        }
    }

    @Test(arguments: versions, [1, Int.max]) func aServerThatRefusesSendsAnAlert(version: TLSProtocolVersion, chunk: Int) throws {
        let acquaintance = try clients(version)
        try expectRefusal(acquaintance.pair(chunk: chunk), .badCertificate)
    }

    private func expectRefusal(_ pair: EnginePair, _ alert: TLSAlert) throws {
        pair.decideServerTrust = { _ in false }
        pair.shakeHands()
        #expect(pair.serverError?.code == .trustRejected && pair.serverError?.sentAlert == alert)
        #expect(pair.serverQuestions.count == 1 && pair.server.session == nil)
        let (text, end) = pair.client.readAll()
        #expect(text.isEmpty && end.error?.alert == alert, "\(end)")
    }

    /// In TLS 1.2, a server that resumes sends its Finished first, so its alert is encrypted.
    @Test(arguments: [
        "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-ECDSA-AES128-CCM", "ECDHE-ECDSA-AES256-CCM", "ECDHE-ECDSA-ARIA256-GCM-SHA384",
    ])
    func theAlertIsTheSameWithEachCipher(suite: String) throws {
        try expectRefusal(clients(.tls12) { $0.useSuite(suite) }.pair(), .badCertificate)
    }

    /// The alert is a different one, but it is fatal too: the client's connection fails, and the client
    /// discards the session.
    @Test func withCBCTheAlertIsAnotherOne() throws {
        try expectRefusal(clients(.tls12) { $0.useSuite("ECDHE-ECDSA-AES128-SHA256") }.pair(), .decodeError)
    }

    @Test(arguments: versions) func aServerThatAcceptsResumes(_ version: TLSProtocolVersion) throws {
        let pair = try clients(version).pair()
        pair.decideServerTrust = { _ in true }
        pair.shakeHands()
        #expect(pair.isComplete && pair.serverQuestions.count == 1 && pair.server.session?.isResumed == true)
    }
}

extension Fixture {
    /// Restricts both sides to this suite of TLS 1.2.
    fileprivate mutating func useSuite(_ name: String) {
        client.policy.cipherSuites = [name]
        server.policy.cipherSuites = [name]
    }
}

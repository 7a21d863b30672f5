import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Events about connections and handshakes that an observer receives.
@Suite(.timeLimit(.patient)) struct ObserverTests {
    @Test(arguments: Link.Delivery.allCases)
    func bothSidesBeginAndEndWithTheirBytes(_ delivery: Link.Delivery) async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(delivery, observer: observer)
        link.client.write(Data("hello\r\n"), withTimeout: .patient, tag: 0)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "hello\r\n")
        link.server.write(Data("hello to you\r\n"), withTimeout: .patient, tag: 0)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await link.atClient.readText() == "hello to you\r\n")
        let peer = link.client.connectedAddress
        link.client.disconnect()
        let told = await observer.untilEnds(2)
        for (role, received, sent) in [(ConnectionRole.client, 14, 7), (.server, 7, 14)] {
            let about = told.about(role)
            #expect(about.count == 2)
            guard case .began(let connection) = about.first, case .ended(connection, _, let totals) = about.last else {
                Issue.record("\(about)")
                return
            }
            #expect((totals.bytesReceived, totals.bytesSent) == (received, sent))
            #expect(totals.duration > .zero)
            #expect(role == .server || connection.peer == peer)
        }
        #expect(told.end(.client)?.error == nil)
        #expect(told.end(.server)?.error?.code == .closedByPeer)
    }

    @Test(arguments: [1, 100_000, 3_000_000], [nil, .tls12, .tls13] as [TLSProtocolVersion?])
    func onlyDataCountsAndAllOfIt(_ count: Int, _ version: TLSProtocolVersion?) async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        link.client.write(Data("STARTTLS\r\n"), withTimeout: .patient, tag: 0)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        // The ClientHello follows the line immediately, and the server may read it before its own startTLS.
        if let version { try link.client.beginTLS(settings: TestCertificates.client().only(version)) }
        _ = try await link.atServer.readData()
        if version != nil { try link.server.beginTLS(settings: TestCertificates.server()) }
        link.client.write(Data(count: count), withTimeout: .patient, tag: 1)
        link.client.disconnectAfterWriting()
        link.server.readDataToEnd(withTimeout: .patient, maxLength: count + 1, tag: 1)
        let told = await observer.untilEnds(2)
        #expect(told.end(.client)?.totals.bytesSent == count + 10)
        #expect(told.end(.client)?.totals.bytesReceived == 0)
        #expect(told.end(.server)?.totals.bytesSent == 0)
        #expect(told.end(.server)?.totals.bytesReceived == count + 10)
    }

    // MARK: - Handshakes

    @Test(arguments: TLSProtocolVersion.tested)
    func aHandshakeIsToldToBothSides(_ version: TLSProtocolVersion) async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        let session = try #require(link.client.tlsSession)
        link.server.disconnect()
        let told = await observer.untilEnds(2)
        for (role, tlsRole) in [(ConnectionRole.client, TLSRole.client), (.server, .server)] {
            let about = told.about(role)
            #expect(about.count == 3)
            guard about.count == 3, case .secured(_, tlsRole, let negotiated, let times) = about[1] else {
                Issue.record("\(about)")
                return
            }
            #expect(negotiated.protocolVersion == version)
            #expect(negotiated.cipherSuite == session.cipherSuite)
            #expect(!negotiated.isResumed)
            #expect(times.total > .zero && times.trust == .zero)
        }
    }

    @Test(arguments: TLSProtocolVersion.tested, [true, false])
    func theTimeOfTheDecisionIsApart(_ version: TLSProtocolVersion, _ isTrusted: Bool) async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        var client = try TestCertificates.client().only(version)
        client.trustEvaluation = .delegate
        try link.startTLS(client: client, server: TestCertificates.server())
        let (_, answer) = try await link.atClient.asked()
        let clock = SuspendingClock()
        let asked = clock.now
        try await eventually("some time has passed") { asked.duration(to: clock.now) > .milliseconds(50) }
        let waited = asked.duration(to: clock.now)
        answer(isTrusted)
        if isTrusted { try await link.atClient.secured() }
        link.client.disconnect()
        let about = await observer.untilEnds(2).about(.client)
        let times: HandshakeTimes
        switch about.dropFirst().first {
        case .secured(_, _, _, let all) where isTrusted: times = all
        case .notSecured(_, _, _, let all) where !isTrusted: times = all
        default: throw Unexpected(description: "\(about)")
        }
        #expect(times.trust >= waited && times.total > times.trust)
    }

    /// The server is slow after the client has evaluated trust. This time belongs to the client's handshake,
    /// not to its trust evaluation.
    @Test func theTimeOfADecisionEndsWithIt() async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        var (client, server) = try TestCertificates.mutual()
        client.trustEvaluation = .delegate
        server.trustEvaluation = .delegate
        try link.startTLS(client: client.only(.tls12), server: server.only(.tls12))
        try await link.atClient.asked().1(true)
        let (_, answer) = try await link.atServer.asked()
        let clock = SuspendingClock()
        let asked = clock.now
        try await eventually("some time has passed") { asked.duration(to: clock.now) > .milliseconds(100) }
        let waited = asked.duration(to: clock.now)
        answer(true)
        try await link.atClient.secured()
        link.client.disconnect()
        let about = await observer.untilEnds(2).about(.client)
        guard about.count == 3, case .secured(_, _, _, let times) = about[1] else { throw Unexpected(description: "\(about)") }
        #expect(times.trust > .zero && times.total - times.trust >= waited, "\(times)")
    }

    @Test func aDecisionThatDoesNotComeEndsWithTheHandshake() async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        var client = try TestCertificates.client()
        client.trustEvaluation = .delegate
        client.trustTimeout = .seconds(0.05)
        try link.startTLS(client: client, server: TestCertificates.server())
        let about = await observer.untilEnds(2).about(.client)
        guard about.count == 3, case .notSecured(_, _, let error, let times) = about[1] else {
            throw Unexpected(description: "\(about)")
        }
        #expect(error?.code == .trustTimeout && times.trust >= .milliseconds(50) && times.total > times.trust)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aRefusedCertificateFailsTheHandshakeOnBothSides(_ version: TLSProtocolVersion) async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        let stranger = try TestCertificates.stranger.issue(.server(names: ["localhost"]))
        try link.startTLS(client: TestCertificates.client().only(version), server: .server(identity: stranger.identity()).patient)
        let told = await observer.untilEnds(2)
        for role in [ConnectionRole.client, .server] {
            let about = told.about(role)
            guard about.count == 3, case .notSecured(_, _, let error, let times) = about[1],
                case .ended(_, error, let totals) = about[2]
            else {
                Issue.record("\(about)")
                return
            }
            #expect(role == .client ? error?.tls?.code == .unknownIssuer : error?.tls?.alert == .unknownCA)
            #expect(times.total > .zero)
            #expect((totals.bytesReceived, totals.bytesSent) == (0, 0))
        }
    }

    @Test func aHandshakeThatIsGivenUpHasFailedWithoutAnError() async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        try link.client.beginTLS(settings: TestCertificates.client())
        link.server.readData(to: Data([0x16, 0x03]), withTimeout: .patient, tag: 0)
        _ = try await link.atServer.readData()
        link.client.disconnect()
        // The server has unread bytes and stays open.
        let about = await observer.untilEnds(1).about(.client)
        guard about.count == 3, case .notSecured(_, .client, nil, _) = about[1] else {
            Issue.record("\(about)")
            return
        }
    }

    @Test func plaintextBeforeAHandshakeFailsItBeforeItBegins() async throws {
        let observer = ObservationRecorder()
        let link = try await Link.make(observer: observer)
        link.server.write(Data("injected"), withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.wrote() == 0)
        try link.client.beginTLS(settings: TestCertificates.client())
        let about = await observer.untilEnds(2).about(.client)
        guard about.count == 3, case .notSecured(_, _, let error, let times) = about[1] else {
            Issue.record("\(about)")
            return
        }
        #expect(error?.code == .earlyPlaintext && times == HandshakeTimes(total: .zero))
    }

    // MARK: - Which observer is used

    @Test func aConnectThatFailsHasNoBeginningAndNoEnd() async throws {
        let observer = ObservationRecorder()
        let socket = AsyncSocket()
        socket.observer = observer
        try socket.connect(toAddress: RawSocket.refusing().localAddress, withTimeout: .patient)
        guard case .connectFailed(let error?) = await observer.next() else {
            Issue.record("it did not fail")
            return
        }
        #expect(error.errno == 111)
        let backlog = try FullBacklog()
        try socket.connect(toAddress: backlog.address, withTimeout: .patient)
        socket.disconnect()
        guard case .connectFailed(nil) = await observer.next() else {
            Issue.record("it was not given up")
            return
        }
    }

    @Test func anAdoptedConnectionBeginsWhenItGetsAnObserver() async throws {
        let observer = ObservationRecorder()
        let (ours, theirs) = try RawSocket.pair()
        let recorder = Recorder()
        let socket = try AsyncSocket(adopting: ours.duplicate(), inlineDelegate: recorder)
        socket.observer = observer
        socket.observer = ObservationRecorder()
        try theirs.send("hello")
        socket.readData(toLength: 5, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "hello")
        // The connection keeps its observer.
        socket.observer = nil
        socket.disconnect()
        let told = await observer.untilEnds(1)
        #expect(told.count == 2)
        #expect(told.about(.adopted).count == 2)
        #expect(told.end(.adopted)?.totals.bytesReceived == 5)
        withExtendedLifetime(ours) {}
    }

    @Test func anObserverMayCallTheSocketThatItObserves() async throws {
        let socket = AsyncSocket()
        let observer = ObservationRecorder { observed in
            guard case .began = observed else { return }
            socket.write(Data("never sent"), withTimeout: .patient, tag: 0)
            socket.observer = nil
            socket.disconnect()
        }
        socket.observer = observer
        let listener = try RawSocket.listening()
        try socket.connect(toAddress: listener.localAddress, withTimeout: .patient)
        #expect(await observer.untilEnds(1).count == 2)
    }

    @Test(arguments: [false, true])
    func everyBeginningHasOneEnd(secure: Bool) async throws {
        let observer = ObservationRecorder()
        let (client, server) = (try TestCertificates.client(), try TestCertificates.server())
        let atListener = Recorder { socket, told in
            guard case .accepted(let child) = told else { return }
            child.removeDelegate()
            if secure { try? child.beginTLS(settings: server) }
            child.readDataToEnd(withTimeout: .patient, tag: 0)
            // Some close after this, others with the peer.
            if child.connectedPort?.isMultiple(of: 3) == true { child.disconnectAfterReadingAndWriting() }
        }
        let listener = AsyncSocket(inlineDelegate: atListener)
        listener.observer = observer
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let count = 60
        for number in 0..<count {
            let socket = AsyncSocket()
            socket.observer = observer
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            if secure { try? socket.beginTLS(settings: client) }
            socket.write(Data("hello"), withTimeout: .patient, tag: 0)
            _ = try await atListener.accepted()
            if number.isMultiple(of: 2) { socket.disconnect() } else { socket.disconnectAfterWriting() }
        }
        // A client that disconnects early may not have started, and is then not reported.
        var (begun, ended, failed): (Set<UInt64>, Set<UInt64>, Int) = ([], [], 0)
        while ended.count < 2 * count - failed, let observed = await observer.next() {
            switch observed {
            case .began(let connection): #expect(begun.insert(connection.number).inserted)
            case .ended(let connection, _, _): #expect(ended.insert(connection.number).inserted)
            case .connectFailed: failed += 1
            case .secured(let connection, _, _, _), .notSecured(let connection, _, _, _):
                #expect(begun.contains(connection.number) && !ended.contains(connection.number))
            case .paused, .lost: Issue.record("\(observed)")
            }
            if ended.count == 2 * count - failed { #expect(ended == begun) }
        }
    }
}

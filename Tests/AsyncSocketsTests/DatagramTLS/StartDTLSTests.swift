import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// `startDTLS` on a connected UDP socket, in both styles.
@Suite(.timeLimit(.patient)) struct StartDTLSTests {
    @Test(arguments: Style.allCases) func anUpgradeFollowsPlaintext(_ style: Style) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        try await client.send("STARTDTLS")
        #expect(try await server.receive() == "STARTDTLS")
        try await server.send("GO AHEAD")
        #expect(try await client.receive() == "GO AHEAD")
        #expect(!client.socket.isSecure && client.socket.tlsSession == nil && client.socket.maximumSendSize == nil)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        for number in 0..<10 {
            try await client.send("question \(number)")
            #expect(try await server.receive() == "question \(number)")
            try await server.send("answer \(number)")
            #expect(try await client.receive() == "answer \(number)")
        }
        for socket in [client.socket, server.socket] {
            #expect(socket.isSecure && socket.tlsSession?.protocolVersion == .dtls12 && socket.maximumSendSize == 16_384)
        }
        let exported = try [client, server].map {
            try $0.socket.exportKeyingMaterial(label: "EXPERIMENTAL", context: [1], length: 16)
        }
        let bound = try [client, server].map { try $0.socket.channelBinding(.tlsUnique) }
        #expect(exported[0] == exported[1] && bound[0] == bound[1])
        client.socket.disconnect()
        #expect(try await server.end()?.code == .closedByPeer)
        #expect(server.socket.isClosed && server.socket.isSecure)
    }

    @Test(arguments: Style.allCases) func aServerWithoutTrustEndsTheSocket(_ style: Style) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        var settings = try TestCertificates.client()
        settings.trustRoots = try TestCertificates.stranger.roots
        async let other = Result.of { try await server.startDTLS(TestCertificates.server()) }
        let error = await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(settings) }
        #expect(error?.tls?.code == .unknownIssuer && error?.fault == .certificate)
        let otherEnd = await other
        #expect(throws: AsyncSocketError.self) { try otherEnd.get() }
        #expect(client.socket.isClosed && !client.socket.isSecure)
        await #expect(throws: AsyncSocketError.self) { try await client.socket.send(Data("secret".utf8)) }
    }

    /// Data sent after the call waits, and is never sent in plaintext, not even after a failure.
    @Test(arguments: Style.allCases) func nothingLeavesInPlaintextBehindTheCall(_ style: Style) async throws {
        // The ClientHello is retransmitted, unless a busy machine delays the socket for that long.
        for seconds in [2.0, 20] where try await handshakeRecords(of: style, within: seconds) > 1 { return }
        #expect(try await handshakeRecords(of: style, within: 200) > 1)
    }

    /// - Returns: The number of records that the attacker receives, excluding the ClientHello for which a
    ///   task waits.
    private func handshakeRecords(of style: Style, within seconds: Double) async throws -> Int {
        let attacker = try AsyncUDPSocket.bound()
        let victim = try StyledDatagramSocket(style)
        try await victim.connect(to: attacker.address)
        try await attacker.connect(to: victim.socket.address)
        victim.socket.send(Data("plain".utf8), withTimeout: -1, tag: 1)
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .seconds(seconds)
        victim.socket.firstRetransmission = .milliseconds(20)
        let upgrade: Task<Void, any Error>
        if let recorder = victim.recorder {
            try victim.socket.beginDTLS(settings: settings)
            upgrade = Task { try await StyledDatagramSocket.secured(recorder) }
        } else {
            upgrade = Task { [settings] in try await victim.startDTLS(settings) }
            // The call has started when the ClientHello arrives. Before that, other sends run concurrently
            // with it.
            #expect(try await attacker.receive().data == Data("plain".utf8))
            #expect(try await attacker.receive().data.first == 22)
        }
        for tag in 2..<10 { victim.socket.send(Data("secret".utf8), withTimeout: -1, tag: tag) }
        if style == .delegate { #expect(try await attacker.receive().data == Data("plain".utf8)) }
        // The attacker replies in plaintext and with bytes that are not DTLS.
        for text in ["injected", "\u{16}injected"] { try await attacker.send(Data(text.utf8)) }
        let error = await #expect(throws: AsyncSocketError.self) { try await upgrade.value }
        #expect(error?.code == .handshakeTimeout)
        victim.socket.send(Data("secret".utf8), withTimeout: -1, tag: 11)
        var count = 0
        while let datagram = try? await attacker.receive(timeout: .milliseconds(200)) {
            #expect(datagram.data.count >= 13 && [20, 21, 22].contains(datagram.data.first ?? 0))
            #expect(datagram.data.range(of: Data("secret".utf8)) == nil)
            count += 1
        }
        if let recorder = victim.recorder {
            #expect(!recorder.history.contains { if case .received = $0 { true } else { false } })
        }
        return count
    }

    /// Plaintext received before is not delivered afterwards.
    @Test(arguments: Style.allCases) func plaintextThatWasNotReadIsNeverDelivered(_ style: Style) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        for text in ["old 1", "old 2"] {
            try await server.send(text)
            try await client.send(text)
        }
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        try await server.send("new")
        try await client.send("new")
        #expect(try await client.receive() == "new")
        #expect(try await server.receive() == "new")
        #expect(client.socket.dropped.invalid == 2 && server.socket.dropped.invalid == 2)
    }

    @Test func aDelegatesEarlierReceiveGetsItsDatagramFirst() async throws {
        let (client, server) = try await StyledDatagramSocket.pair(.delegate)
        let recorder = try #require(server.recorder)
        try server.socket.receiveOnce()
        try server.socket.beginDTLS(settings: TestCertificates.server())
        try server.socket.receiveOnce()
        try await client.send("plain")
        #expect(try await recorder.received().data == Data("plain".utf8))
        try await client.startDTLS(TestCertificates.client())
        try await client.send("secure")
        #expect(try await recorder.received().data == Data("secure".utf8))
    }

    /// A filter that does not complete, or a datagram that does not arrive, delays a task only for the
    /// handshake timeout.
    @Test(arguments: [true, false]) func aTaskDoesNotWaitWithoutEndForWhatComesBefore(_ isFilter: Bool) async throws {
        let (client, _) = try await StyledDatagramSocket.pair(.task)
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .milliseconds(300)
        let queue = DispatchQueue(label: "filter")
        queue.suspend()
        defer { queue.resume() }
        if isFilter {
            client.socket.setSendFilter(on: queue) { _, _, _ in true }
            client.socket.send(Data("held".utf8), withTimeout: -1, tag: 1)
        } else {
            try client.socket.receiveOnce()
        }
        let error = await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(settings) }
        #expect(error?.code == .handshakeTimeout)
        #expect(client.socket.isClosed)
    }

    @Test func aDelegateThatReceivesGoesOnReceiving() async throws {
        let (client, server) = try await StyledDatagramSocket.pair(.delegate)
        let recorder = try #require(server.recorder)
        try server.socket.beginReceiving()
        try await client.send("plain")
        #expect(try await recorder.received().data == Data("plain".utf8))
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        for number in 0..<200 { client.socket.send(Data("\(number)".utf8), withTimeout: -1, tag: number) }
        for number in 0..<200 { #expect(try await recorder.received().data == Data("\(number)".utf8)) }
    }

    @Test(arguments: Style.allCases, [true, false])
    func aProgramDecidesAboutBothSides(_ style: Style, _ isAccepted: Bool) async throws {
        var (clientSettings, serverSettings) = try TestCertificates.mutual()
        clientSettings.trustEvaluation = .delegate
        serverSettings.trustEvaluation = .delegate
        let asked = Locked<[String]>([])
        let (client, server) = try await StyledDatagramSocket.pair(style) { trust in
            asked.withLock { $0.append("client: \(trust.verdict == .trusted)") }
            return true
        } serverTrust: { trust in
            asked.withLock { $0.append("server: \(trust.chain.count)") }
            return isAccepted
        }
        let outcome = await Result.of { [clientSettings, serverSettings] in
            try await secure(client, clientSettings, server, serverSettings)
        }
        #expect(asked.withLock { $0.count } == 2)
        if isAccepted {
            try outcome.get()
            try await client.send("hello")
            #expect(try await server.receive() == "hello")
            #expect(server.socket.tlsSession?.peerCertificates.isEmpty == false)
        } else {
            #expect(throws: AsyncSocketError.self) { try outcome.get() }
            #expect(!client.socket.isSecure && !server.socket.isSecure)
        }
    }

    /// Handshake messages are retransmitted while trust is being evaluated.
    @Test(arguments: Style.allCases) func messagesAreSentAgainWhileAJudgeThinks(_ style: Style) async throws {
        var settings = try TestCertificates.client()
        settings.trustEvaluation = .delegate
        let relays = Locked<[DatagramRelay]>([])
        let client = try StyledDatagramSocket(style) { _ in
            guard let relay = relays.withLock({ $0.first }) else { return false }
            let count = relay.countFromServer
            // Both the server and the client retransmit.
            try? await eventually("it was said again") { relay.countFromServer > count + 1 }
            return true
        }
        let server = try StyledDatagramSocket(style)
        let relay = try DatagramRelay(to: server.socket.localPort)
        defer { relay.close() }
        relays.withLock { $0 = [relay] }
        client.socket.firstRetransmission = .milliseconds(50)
        server.socket.firstRetransmission = .milliseconds(50)
        try await client.connect(to: .loopback(port: relay.port))
        try await client.send("hello")
        let hello = try await server.socket.receiveAny(server.recorder)
        try await server.connect(to: hello.sender)
        try await secure(client, settings, server, TestCertificates.server())
        try await client.send("secure")
        #expect(try await server.receive() == "secure")
    }

    @Test(arguments: Style.allCases) func aDatagramThatIsTooLargeFailsAlone(_ style: Style) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        client.socket.maximumDatagramSize = 600
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        let limit = try #require(client.socket.maximumSendSize)
        #expect(limit == 563)
        for size in [0, limit + 1] {
            let error = await #expect(throws: AsyncSocketError.self) {
                try await client.send(String(repeating: "x", count: size))
            }
            #expect(error?.code == .badParameter && error?.fault == .caller)
        }
        try await client.send(String(repeating: "x", count: limit))
        #expect(try await server.receive().count == limit)
    }

    @Test(arguments: Style.allCases) func settingsThatDTLSCannotHaveCloseTheSocketBeforeAnythingIsSent(_ style: Style)
        async throws
    {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        let error = await #expect(throws: AsyncSocketError.self) {
            try await client.startDTLS(try TestCertificates.client().only(.tls13))
        }
        #expect(error?.tls?.code == .invalidSettings && error?.fault == .caller)
        #expect(error?.message.contains("minimumVersion") == true)
        try await eventually("it is closed") { client.socket.isClosed }
        client.socket.send(Data("plain".utf8), withTimeout: -1, tag: 0)
        await #expect(throws: AsyncSocketError.self) { try await client.socket.send(Data("plain".utf8)) }
        let nothing = await #expect(throws: AsyncSocketError.self) {
            try await server.socket.receive(timeout: .milliseconds(100))
        }
        #expect(nothing?.code == .readTimeout)
    }

    @Test(arguments: Style.allCases) func aSecondCallThrowsAndChangesNothing(_ style: Style) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        let error = #expect(throws: AsyncSocketError.self) { try client.socket.beginDTLS(settings: TestCertificates.client()) }
        #expect(error?.code == .badConfiguration)
        await #expect(throws: AsyncSocketError.self) { try await client.socket.startDTLS(settings: TestCertificates.client()) }
        try await client.send("still here")
        #expect(try await server.receive() == "still here")
        let fresh = AsyncUDPSocket()
        #expect(throws: AsyncSocketError.self) { try fresh.beginDTLS(settings: TestCertificates.client()) }
    }

    @Test func aTaskThatIsCancelledClosesTheSocket() async throws {
        let peer = try AsyncUDPSocket.bound()
        let client = try StyledDatagramSocket(.task)
        try await client.connect(to: peer.address)
        let task = Task { try await client.startDTLS(TestCertificates.client()) }
        _ = try await peer.receive()
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        try await eventually("it is closed") { client.socket.isClosed }
        // The peer is notified of the cancelled handshake with user_canceled and close_notify.
        var last = Data()
        while let datagram = try? await peer.receive(timeout: .milliseconds(200)) { last = datagram.data }
        #expect(last.first == 21 && last.count == 30)
    }

    @Test func aTaskThatWaitsForADatagramKeepsTheUpgradeFromBeginning() async throws {
        let (client, _) = try await StyledDatagramSocket.pair(.task)
        let receiving = Task.immediate { try await client.socket.receive() }
        let error = await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(TestCertificates.client()) }
        #expect(error?.code == .badConfiguration)
        await #expect(throws: AsyncSocketError.self) { try await receiving.value }
        #expect(client.socket.isClosed)
    }

    /// Only datagrams from the peer's address and port are received.
    @Test(arguments: Style.allCases) func aPeerThatChangesItsPortIsNotHeard(_ style: Style) async throws {
        let server = try StyledDatagramSocket(style)
        let relay = try DatagramRelay(to: server.socket.localPort)
        defer { relay.close() }
        let client = try StyledDatagramSocket(style)
        try await client.connect(to: .loopback(port: relay.port))
        try await client.send("hello")
        let hello = try await server.socket.receiveAny(server.recorder)
        try await server.connect(to: hello.sender)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        relay.setHarm(DatagramRelay.Harm(loss: 100))
        try await client.send("moved")
        try await eventually("it was sent") { relay.seen.last?.first == 23 }
        let moved = try AsyncUDPSocket.bound()
        try await moved.send(Data(try #require(relay.seen.last)), to: "127.0.0.1", port: server.socket.localPort)
        relay.setHarm(DatagramRelay.Harm())
        try await client.send("right")
        #expect(try await server.receive() == "right")
    }

    @Test(arguments: Style.allCases) func disconnectingDoesNotGoBackToPlaintext(_ style: Style) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        client.socket.dissolveAssociation()
        #expect(try await server.end()?.code == .closedByPeer)
        try await eventually("it is closed") { client.socket.isClosed }
    }

    @Test(arguments: Style.allCases) func repeatedDatagramsAreDeliveredOnceAndCorruptedOnesNever(_ style: Style) async throws {
        let server = try StyledDatagramSocket(style)
        let relay = try DatagramRelay(to: server.socket.localPort)
        defer { relay.close() }
        let client = try StyledDatagramSocket(style)
        try await client.connect(to: .loopback(port: relay.port))
        try await client.send("hello")
        let hello = try await server.socket.receiveAny(server.recorder)
        try await server.connect(to: hello.sender)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        relay.setHarm(DatagramRelay.Harm(repetition: 100))
        for number in 0..<20 { try await client.send("\(number)") }
        for number in 0..<20 { #expect(try await server.receive() == "\(number)") }
        relay.setHarm(DatagramRelay.Harm(corruption: 100))
        for _ in 0..<20 { try await client.send("corrupted") }
        try await eventually("they were dropped") { server.socket.dropped.invalid >= 40 }
        relay.setHarm(DatagramRelay.Harm())
        try await client.send("end")
        #expect(try await server.receive() == "end")
    }

    @Test(arguments: Style.allCases) func anObserverLearnsOfTheHandshake(_ style: Style) async throws {
        let observer = ObservationRecorder()
        let (client, server) = (try StyledDatagramSocket(style), try StyledDatagramSocket(style))
        client.socket.observer = observer
        try await client.connect(to: server.socket.address)
        try await server.connect(to: client.socket.address)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        client.socket.disconnect()
        _ = try await server.end()
        let told = await observer.untilEnds(1)
        #expect(
            told.contains {
                if case .secured(_, .client, let session, _) = $0 { session.protocolVersion == .dtls12 } else { false }
            })
    }
}

extension Result where Failure == any Error, Success: Sendable {
    /// The result of a call.
    static func of(_ body: @Sendable () async throws -> Success) async -> Self {
        do {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }
}

extension AsyncUDPSocket {
    /// Receives the next datagram through the recorder if there is one, otherwise as a task.
    func receiveAny(_ recorder: DatagramRecorder?) async throws -> Datagram {
        guard let recorder else { return try await receive() }
        try receiveOnce()
        return try await recorder.received()
    }
}

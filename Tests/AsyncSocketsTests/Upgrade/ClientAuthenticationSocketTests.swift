import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Servers that request client certificates after the handshake, over real sockets.
@Suite(.timeLimit(.patient)) struct ClientAuthenticationSocketTests {
    private struct Refused: Error {}

    private var client: TLSClientSettings
    private var server: TLSServerSettings

    init() throws {
        (client, server) = try TestCertificates.mutual(.certificatesOnRequest())
        client.allowsPostHandshakeAuthentication = true
    }

    private typealias Settings = (client: TLSClientSettings, server: TLSServerSettings)

    private func changed(_ change: (inout Settings) -> Void) -> Settings {
        var settings = (client: client, server: server)
        change(&settings)
        return settings
    }

    /// Returns secure sockets for tasks.
    @inline(never) private func connected(_ changed: Settings? = nil) async throws -> SocketPair {
        let settings = changed ?? (client, server)
        let pair = try await SocketPair()
        let atServer = Task.immediate { try await pair.server.startTLS(settings: settings.server) }
        try await pair.client.startTLS(settings: settings.client)
        #expect(try await atServer.value.peerCertificates.isEmpty)
        return pair
    }

    private func expectTLS(
        _ code: TLSError.Code, _ body: nonisolated(nonsending) () async throws -> TLSSession
    ) async {
        let error = await #expect(throws: AsyncSocketError.self) { _ = try await body() }
        #expect(error?.tls?.code == code)
    }

    // MARK: - Tasks

    @Test func aServerAsksWhenItKnowsWhatTheClientWants() async throws {
        let pair = try await connected()
        try await pair.client.write("GET /open\nGET /secret\n")
        var reader = pair.server.lines.makeAsyncIterator()
        #expect(try await reader.next() == "GET /open")
        #expect(try await reader.next() == "GET /secret")
        for isRequired in [true, false] {
            let session = try await pair.server.requestClientCertificate(isRequired: isRequired)
            #expect(session.peerCertificates.first?.commonName == "alice")
            #expect(pair.server.tlsSession == session)
        }
        try await pair.server.write("welcome\n")
        #expect(try await pair.client.readLine() == "welcome")
        try await pair.client.write("thanks\n")
        #expect(try await reader.next() == "thanks")
    }

    /// A client that has closed its write side cannot respond.
    @Test func aClientThatHasEndedItsSideIsNotAsked() async throws {
        let pair = try await connected()
        pair.server.autoDisconnectOnClosedReadStream = false
        pair.client.disconnectAfterWriting()
        #expect(try await pair.server.read() == nil)
        // The first request was not sent either, which a second one would detect.
        for _ in 0..<2 {
            let result = await outcome { try await pair.server.requestClientCertificate() }
            #expect(result == .failed(.closedByPeer))
        }
    }

    /// The client closes its side and never reads the request. Our side continues, without a timer.
    @Test func aClientThatEndsItsSideInsteadIsWaitedForNoLonger() async throws {
        let pair = try await connected()
        pair.server.autoDisconnectOnClosedReadStream = false
        let write = Task.immediate { try await pair.server.write(Data(repeating: 1, count: 64 << 20)) }
        try await eventually("the client has had enough") { (pair.server.writeProgress?.bytesDone ?? 0) > 1 << 20 }
        let request = Task.immediate { try await pair.server.requestClientCertificate() }
        try await pair.server.turn("the request is outstanding") { $0.upgrade?.hasDeadline == true }
        pair.client.closeWriteStream()
        #expect(await request.outcome == .failed(.closedByPeer))
        var hasClock = true
        try await pair.server.turn("the turn is free") {
            hasClock = $0.upgrade?.hasDeadline != false || $0.upgrade?.state.isSettled != true
            return true
        }
        #expect(!hasClock && pair.server.isConnected)
        pair.server.disconnect()
        #expect(await write.outcome == .failed(.closed))
    }

    @Test func aRefusalNamesTheRequest() async throws {
        let pair = try await connected()
        let reading = Task.immediate { try await pair.client.read() }
        let error = await #expect(throws: AsyncSocketError.self) {
            _ = try await pair.server.requestClientCertificate { _ in false }
        }
        #expect(error?.operation == .requestClientCertificate && error?.tls != nil)
        _ = await reading.outcome
    }

    @Test func aReaderMayWaitMeanwhile() async throws {
        let pair = try await connected()
        let read = Task.immediate { try await pair.server.read(exactly: 5) }
        let (isAsked, mayTrust) = (try TestSignal(), try TestSignal())
        let request = Task.immediate {
            try await pair.server.requestClientCertificate { trust in
                isAsked.fire()
                try await mayTrust.wait()
                return trust.verdict == .trusted
            }
        }
        try await isAsked.wait()
        // No data is transferred in either direction until the decision is made.
        try await pair.client.write("after")
        let write = Task.immediate { try await pair.server.write("welcome") }
        #expect(pair.server.tlsSession?.peerCertificates.isEmpty == true)
        // A busy loop processes the write a moment later.
        try await eventually("the write waits") { pair.server.writeProgress != nil }
        #expect(pair.server.readProgress?.bytesDone == 0)
        mayTrust.fire()
        #expect(try await request.value.peerCertificates.first?.commonName == "alice")
        #expect(try await read.value == Data("after"))
        try await write.value
        #expect(try await pair.client.read(exactly: 7) == Data("welcome"))
    }

    @Test func aTaskMayRefuseOrThrow() async throws {
        let refusing = try await connected()
        await expectTLS(.trustRejected) { try await refusing.server.requestClientCertificate { _ in false } }
        #expect(!refusing.server.isConnected)
        let error = await #expect(throws: AsyncSocketError.self) { try await refusing.client.read(exactly: 1) }
        #expect(error?.tls?.alert == .badCertificate)
        let throwing = try await connected()
        await #expect(throws: Refused.self) {
            try await throwing.server.requestClientCertificate { _ in throw Refused() }
        }
        await #expect(throws: AsyncSocketError.self) { try await throwing.client.read(exactly: 1) }
    }

    @Test func whoShowsNothingGoodIsRefused() async throws {
        let nameless = try await connected(changed { $0.client.identity = nil })
        #expect(try await nameless.server.requestClientCertificate(isRequired: false).peerCertificates.isEmpty)
        await expectTLS(.clientCertificateMissing) { try await nameless.server.requestClientCertificate() }
    }

    @Test func noOneIsAskedAboutAStranger() async throws {
        let identity = try TestCertificates.stranger.issue(.client(commonName: "mallory")).identity()
        let stranger = try await connected(changed { $0.client.identity = identity })
        await expectTLS(.unknownIssuer) {
            try await stranger.server.requestClientCertificate { _ in
                Issue.record("asked in vain")
                return true
            }
        }
        try await eventually("the connection ends") { !stranger.server.isConnected }
    }

    @Test func whatCannotBeAskedDoesNoHarm() async throws {
        let unwilling = try await connected(changed { $0.client.allowsPostHandshakeAuthentication = false })
        let old = try await connected((client.only(.tls12), server.only(.tls12)))
        for pair in [unwilling, old] {
            await expectTLS(.postHandshakeAuthenticationUnavailable) { try await pair.server.requestClientCertificate() }
            try await pair.server.write("still here\n")
            #expect(try await pair.client.readLine() == "still here")
        }
        await expectTLS(.invalidSettings) { try await unwilling.client.requestClientCertificate() }
        let undecided = try await connected(changed { $0.server.trustEvaluation = .builtIn })
        undecided.server.disconnect()
        await #expect(throws: AsyncSocketError.self) { try await undecided.server.requestClientCertificate() }
        let plain = try await SocketPair()
        let error = await #expect(throws: AsyncSocketError.self) { try await plain.server.requestClientCertificate() }
        #expect(error?.code == .badConfiguration && plain.server.isConnected)
    }

    /// The settings require a decision, but there is nothing to make it, so the request is not sent.
    @Test func aRequestWithoutADecisionIsNotSent() async throws {
        let pair = try await SocketPair()
        let settings = server
        let atServer = Task.immediate { try await pair.server.startTLS(settings: settings) { _ in true } }
        try await pair.client.startTLS(settings: client)
        _ = try await atServer.value
        for _ in 0..<2 {
            let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.requestClientCertificate() }
            #expect(error?.code == .badConfiguration && error?.operation == .requestClientCertificate)
            try await pair.server.write("still here\n")
            #expect(try await pair.client.readLine() == "still here")
        }
        let session = try await pair.server.requestClientCertificate { $0.verdict == .trusted }
        #expect(session.peerCertificates.first?.commonName == "alice")
    }

    @Test func aSecondRequestWaitsForNoOne() async throws {
        let pair = try await connected()
        let (isAsked, mayTrust) = (try TestSignal(), try TestSignal())
        let first = Task.immediate {
            try await pair.server.requestClientCertificate { _ in
                isAsked.fire()
                try await mayTrust.wait()
                return true
            }
        }
        try await isAsked.wait()
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.requestClientCertificate() }
        #expect(error?.tls?.code == .certificateRequestPending)
        mayTrust.fire()
        #expect(try await first.value.peerCertificates.first?.commonName == "alice")
        // A task's decision applies only to its own request.
        #expect(try await pair.server.requestClientCertificate().peerCertificates.first?.commonName == "alice")
    }

    /// Returns a server with short timeouts for handshakes and requests that a busy machine can still meet.
    private func connectedForAShortTime() async throws -> SocketPair {
        for limit in [2.0, 20] {
            if let pair = try? await connected(changed { $0.server.handshakeTimeout = .seconds(limit) }) { return pair }
        }
        return try await connected(changed { $0.server.handshakeTimeout = .seconds(100) })
    }

    /// The client no longer reads, so it never sees the request.
    @Test func aClientThatDoesNotAnswerRunsOutOfTime() async throws {
        let pair = try await connectedForAShortTime()
        let write = Task.immediate { try await pair.server.write(Data(repeating: 1, count: 64 << 20)) }
        try await eventually("the client has had enough") { (pair.server.writeProgress?.bytesDone ?? 0) > 1 << 20 }
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.requestClientCertificate() }
        #expect(error?.code == .handshakeTimeout && error?.operation == .requestClientCertificate)
        #expect(await write.outcome == .failed(.handshakeTimeout) && !pair.server.isConnected)
    }

    @Test func aDecisionThatDoesNotComeEndsTheConnection() async throws {
        let pair = try await connected(changed { $0.server.trustTimeout = .seconds(0.2) })
        let never = try TestSignal()
        await expectTLS(.trustTimeout) {
            try await pair.server.requestClientCertificate { _ in
                _ = try? await pair.client.read(exactly: 1)
                withExtendedLifetime(never) {}
                return true
            }
        }
    }

    /// The client has closed its side, as above. The request cannot be withdrawn.
    @Test func aCancelledRequestEndsTheConnection() async throws {
        let pair = try await connected()
        let write = Task.immediate { try await pair.server.write(Data(repeating: 1, count: 64 << 20)) }
        try await eventually("the client has had enough") { (pair.server.writeProgress?.bytesDone ?? 0) > 1 << 20 }
        let request = Task.immediate { try await pair.server.requestClientCertificate() }
        request.cancel()
        #expect(await request.outcome == .cancelled && !pair.server.isConnected)
        #expect(await write.outcome == .failed(.closed))
    }

    @Test func aClientThatLeavesInsteadIsAnError() async throws {
        let pair = try await connected()
        pair.client.disconnect()
        await #expect(throws: AsyncSocketError.self) { try await pair.server.requestClientCertificate() }
    }

    // MARK: - Delegates

    @Test(arguments: Link.Delivery.allCases, [true, false])
    func aDelegateDecides(_ delivery: Link.Delivery, isAccepted: Bool) async throws {
        let link = try await Link.make(delivery)
        var server = server
        server.trustEvaluation = .delegate
        try await link.secure(client: client, server: server)
        link.server.readData(withTimeout: .patient, tag: 1)
        try link.server.beginClientCertificateRequest()
        let (trust, answer) = try await link.atServer.asked()
        #expect(trust.peer == .client && trust.leaf?.commonName == "alice")
        link.client.write(Data("after"), withTimeout: .patient, tag: 0)
        answer(isAccepted)
        guard isAccepted else {
            #expect(try await link.atServer.disconnected()?.tls?.code == .trustRejected)
            #expect(try await link.atClient.disconnected()?.tls?.alert == .badCertificate)
            return
        }
        let session = try await link.atServer.requestedCertificate().get()
        #expect(session.peerCertificates.first?.commonName == "alice" && link.server.tlsSession == session)
        #expect(try await link.atServer.readText() == "after")
    }

    @Test func anAnswerIsForItsOwnQuestionOnly() async throws {
        let link = try await Link.make()
        var server = server
        server.trustEvaluation = .delegate
        try await link.secure(client: client, server: server)
        link.server.readData(withTimeout: .patient, tag: 1)
        try link.server.beginClientCertificateRequest()
        let (_, first) = try await link.atServer.asked()
        first(true)
        _ = try await link.atServer.requestedCertificate().get()
        try link.server.beginClientCertificateRequest()
        let (_, second) = try await link.atServer.asked()
        first(true)
        second(false)
        #expect(try await link.atServer.disconnected()?.tls?.code == .trustRejected)
    }

    @Test func aDelegateLearnsWhyItCannotAsk() async throws {
        let link = try await Link.make()
        var client = client
        client.allowsPostHandshakeAuthentication = false
        try await link.secure(client: client, server: server)
        try link.server.beginClientCertificateRequest()
        guard case .failure(let error) = try await link.atServer.requestedCertificate() else { throw Refused() }
        #expect(error.tls?.code == .postHandshakeAuthenticationUnavailable)
        link.client.write(Data("still here"), withTimeout: .patient, tag: 0)
        link.server.readData(withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.readText() == "still here")
    }
}

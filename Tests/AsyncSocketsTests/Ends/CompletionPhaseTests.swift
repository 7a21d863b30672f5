import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Every operation completes exactly once, even if the connection ends while connecting, during the
/// handshake, or is closed by its own side.
@Suite(.timeLimit(.patient)) struct CompletionPhaseTests {
    private func connect(to port: UInt16, _ recorder: Recorder = Recorder()) async throws -> (AsyncSocket, Recorder) {
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
        try await recorder.connected()
        return (socket, recorder)
    }

    // MARK: - Connecting

    enum ConnectFailure: CaseIterable, Sendable {
        case refusal, timeout, proxy, disconnect, cancellation

        var outcome: Outcome {
            switch self {
            case .refusal: .failed(.connectFailed)
            case .timeout: .failed(.connectTimeout)
            case .proxy: .failed(.proxyFailed)
            case .disconnect, .cancellation: .failed(.closed)
            }
        }
    }

    @Test(arguments: ConnectFailure.allCases)
    func whatIsQueuedIsAnsweredWhenNoConnectionIsMade(_ failure: ConnectFailure) async throws {
        let refusing = try RawSocket.refusing()
        let full = try FullBacklog()
        let socket = AsyncSocket()
        let waiter = CountingWaiter<Void>()
        let connection = try socket.makeConnection(.connect)
        var port = full.port
        var tunnel: Tunnel?
        if failure == .refusal { port = try refusing.localPort }
        if failure == .proxy {
            let script = ProxyScript.socks5
            port = try ScriptedPeer.listening(script.untilRequest + [.close]).port
            tunnel = try Tunnel(through: script.proxy(on: port), toHost: ProxyScript.host, port: ProxyScript.port)
        }
        let destination = Destination(
            target: .host("127.0.0.1", port: port), tunnel: tunnel, policy: RoutePolicy(), resolver: .system)
        let operations = Operations()
        operations.read(.anyBytes, on: socket)
        operations.write(Data("hello"), on: socket)
        operations.startTLS(try TestCertificates.client(), on: socket)
        operations.read(.end, on: socket)
        // Posted last, because the connection may be refused before the next line.
        connection.post(.connect(destination, timeout: failure == .timeout ? 0.1 : .patient, waiter: waiter))
        if failure == .disconnect { socket.disconnect() }
        if failure == .cancellation { socket.cancel(waiter) }
        try await operations.expect(failure.outcome)
        await socket.settle()
        try await operations.expect(failure.outcome)
        #expect(waiter.outcomes == [failure == .cancellation ? .cancelled : failure.outcome])
        withExtendedLifetime((refusing, full)) {}
    }

    @Test func whoWaitsForTheConnectionIsToldInPlaceOfTheDelegate() async throws {
        let peer = try ScriptedPeer.listening([.send("hi")])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        let waiter = CountingWaiter<Void>()
        let connection = try socket.makeConnection(.connect)
        let destination = Destination(
            target: .host("127.0.0.1", port: peer.port), policy: RoutePolicy(), resolver: .system)
        connection.post(.connect(destination, timeout: .patient, waiter: waiter))
        let read = Operations().read(.length(2), on: socket)
        #expect(try await read.value() == Data("hi"))
        #expect(waiter.outcomes == [.served])
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        #expect(recorder.unread.isEmpty && waiter.outcomes == [.served])
    }

    // MARK: - Handshake

    enum HandshakeFailure: CaseIterable, Sendable {
        case notTLS, fin, reset, silence, refusal, noVerdict, earlyBytes, badSettings, disconnect, cancellation

        func steps(_ isUnderWay: TestSignal) throws -> [ScriptedPeer.Step] {
            switch self {
            case .notTLS: [.expectClientHello, .send("220 no TLS here\r\n")]
            case .fin: [.expectClientHello, .finish]
            case .reset: [.expectClientHello, .reset]
            case .silence, .badSettings: [.wait(for: try TestSignal())]
            case .refusal, .noVerdict: [.startTLS(try TestCertificates.server())]
            case .earlyBytes: [.send("0123456789")]
            case .disconnect, .cancellation: [.expectClientHello, .fire(isUnderWay), .wait(for: try TestSignal())]
            }
        }

        var code: AsyncSocketError.Code {
            switch self {
            case .notTLS, .fin, .refusal, .badSettings: .tls
            case .reset: .connectionReset
            case .silence: .handshakeTimeout
            case .noVerdict: .trustTimeout
            case .earlyBytes: .earlyPlaintext
            case .disconnect, .cancellation: .closed
            }
        }

        var settings: TLSClientSettings {
            get throws {
                var settings = try TestCertificates.client()
                if self == .silence { settings.handshakeTimeout = .seconds(0.05) }
                if self == .noVerdict { settings.trustTimeout = .seconds(0.05) }
                if self == .refusal || self == .noVerdict { settings.trustEvaluation = .manual }
                if self == .badSettings { (settings.minimumVersion, settings.maximumVersion) = (.tls13, .tls12) }
                return settings
            }
        }
    }

    @Test(arguments: HandshakeFailure.allCases)
    func whatIsBehindTheHandshakeIsAnsweredWhenItFails(_ failure: HandshakeFailure) async throws {
        let isUnderWay = try TestSignal()
        let peer = try ScriptedPeer.listening(failure.steps(isUnderWay))
        let (socket, recorder) = try await connect(
            to: peer.port,
            Recorder { _, told in
                if failure == .refusal, case .asked(_, let answer) = told { answer(false) }
            })
        if failure == .earlyBytes {
            #expect(try await Operations().read(.length(5), on: socket).value() == Data("01234"))
        }
        let operations = Operations()
        let upgrade = CountingWaiter<HandshakeNews>()
        socket.startTLS(try failure.settings, for: upgrade)
        operations.read(.length(1), on: socket)
        operations.write(Data("secret"), on: socket)
        operations.read(.end, on: socket)
        if failure == .disconnect || failure == .cancellation { try await isUnderWay.wait() }
        if failure == .disconnect { socket.disconnect() }
        if failure == .cancellation { socket.cancel(upgrade) }
        try await operations.expect(.failed(failure.code))
        _ = try await recorder.disconnected()
        await socket.settle()
        try await operations.expect(.failed(failure.code))
        #expect(upgrade.outcomes == [failure == .cancellation ? .cancelled : .failed(failure.code)])
        peer.stop()
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func whatIsAroundTheHandshakeIsServedOnce(_ version: TLSProtocolVersion) async throws {
        let settings = try TestCertificates.server()
        let peer = try ScriptedPeer.listening([
            .expect("before"), .send("ready"), .startTLS(settings), .expect("behind"), .send("hello"),
        ])
        let (socket, recorder) = try await connect(to: peer.port)
        let operations = Operations()
        operations.write(Data("before"), on: socket)
        let reply = operations.read(.length(5), on: socket)
        let upgrade = operations.startTLS(try TestCertificates.client().only(version), on: socket)
        operations.write(Data("behind"), on: socket)
        let answer = operations.read(.length(5), on: socket)
        try await operations.expect(.served)
        #expect(try await reply.value() == Data("ready"))
        #expect(try await upgrade.session().protocolVersion == version)
        #expect(try await answer.value() == Data("hello"))
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        #expect(recorder.unread.isEmpty)
        try await operations.expect(.served)
        // The second one fails without an effect.
        let second = Operations()
        second.startTLS(try TestCertificates.client(), on: socket)
        try await second.expect(.failed(.closed))
    }

    // MARK: - Closing our side

    /// More than the kernel buffers of both sides hold, and less than `maximumPendingWriteBytes`.
    private static let more = Data(count: 48 << 20)

    private func start(isSecure: Bool, _ steps: [ScriptedPeer.Step]) async throws -> (AsyncSocket, Recorder) {
        let settings = try TestCertificates.server()
        let start: [ScriptedPeer.Step] = isSecure ? [.startTLS(settings)] : []
        let (socket, recorder) = try await connect(to: ScriptedPeer.listening(start + steps).port)
        if isSecure {
            try socket.beginTLS(settings: TestCertificates.client())
            try await recorder.secured()
        }
        return (socket, recorder)
    }

    @Test(arguments: [false, true])
    func anEndAfterReadsDropsTheWrites(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, recorder) = try await start(
            isSecure: isSecure, [.wait(for: maySend), .send("hello"), .wait(for: try TestSignal())])
        let (served, dropped) = (Operations(), Operations())
        served.read(.length(2), on: socket)
        served.read(.length(3), on: socket)
        dropped.write(Self.more, on: socket)
        dropped.write(Data("waits"), on: socket)
        socket.disconnectAfterReading()
        dropped.read(.anyBytes, on: socket)
        dropped.write(Data("late"), on: socket)
        dropped.startTLS(try TestCertificates.client(), on: socket)
        await socket.settle()
        #expect(socket.isConnected)
        maySend.fire()
        #expect(try await recorder.disconnected() == nil)
        try await served.expect(.served)
        try await dropped.expect(.failed(.closed))
    }

    @Test(arguments: [false, true])
    func anEndAfterWritesDropsTheReads(isSecure: Bool) async throws {
        let (socket, recorder) = try await start(isSecure: isSecure, [.expect("hello"), .expectEnd])
        let (served, dropped) = (Operations(), Operations())
        dropped.read(.length(2), on: socket)
        dropped.read(.end, on: socket)
        served.write(Data("hel"), on: socket)
        served.write(Data("lo"), on: socket)
        socket.disconnectAfterWriting()
        dropped.write(Data("late"), on: socket)
        #expect(try await recorder.disconnected() == nil)
        try await served.expect(.served)
        try await dropped.expect(.failed(.closed))
    }

    @Test(arguments: [false, true])
    func anEndAfterBothDropsNothing(isSecure: Bool) async throws {
        let (socket, recorder) = try await start(isSecure: isSecure, [.expect("hello"), .send("answer"), .expectEnd])
        let (served, dropped) = (Operations(), Operations())
        served.read(.length(6), on: socket)
        served.write(Data("hello"), on: socket)
        socket.disconnectAfterReadingAndWriting()
        dropped.read(.anyBytes, on: socket)
        dropped.write(Data("late"), on: socket)
        #expect(try await recorder.disconnected() == nil)
        try await served.expect(.served)
        try await dropped.expect(.failed(.closed))
    }

    @Test(arguments: [false, true])
    func aBrokenFileFailsWhatIsBehindIt(isSecure: Bool) async throws {
        let mayRead = try TestSignal()
        let (socket, recorder) = try await start(isSecure: isSecure, [.wait(for: mayRead), .expectReset])
        let folder = try TemporaryFolder()
        try Self.more.write(to: folder.url("file"))
        try socket.write(contentsOfFile: folder.path("file"), tag: 0)
        #expect(truncate(folder.path("file"), 1000) == 0)
        let operations = Operations()
        operations.write(Data("behind"), on: socket)
        operations.read(.anyBytes, on: socket)
        mayRead.fire()
        try await operations.expect(.failed(.system))
        #expect(try await recorder.disconnected()?.errno == ENODATA)
        await socket.settle()
        try await operations.expect(.failed(.system))
    }

    @Test(arguments: [false, true])
    func aClosedReadSideAnswersEachReadAndKeepsTheWrites(isSecure: Bool) async throws {
        let (socket, recorder) = try await start(
            isSecure: isSecure, [.send("all"), .sendCloseNotify, .finish, .expect("answer")])
        socket.autoDisconnectOnClosedReadStream = false
        let (served, dropped) = (Operations(), Operations())
        let all = served.read(.end, on: socket)
        dropped.read(.anyBytes, on: socket)
        try await recorder.readStreamClosed()
        dropped.read(.length(1), on: socket)
        try await dropped.expect(.failed(.closedByPeer))
        served.write(Data("answer"), on: socket)
        try await served.expect(.served)
        #expect(try await all.value() == Data("all"))
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        try await dropped.expect(.failed(.closedByPeer))
    }

    @Test func whoIsNotConnectedIsAnsweredAtOnce() async throws {
        let operations = Operations()
        let socket = AsyncSocket()
        operations.read(.anyBytes, on: socket)
        operations.write(Data("hello"), on: socket)
        operations.startTLS(try TestCertificates.client(), on: socket)
        try await operations.expect(.failed(.badConfiguration))
    }
}

import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketTLS

/// Work of a handshake that another thread completes after the handshake was aborted: signatures, trust
/// decisions, and look-ups of names and keys. The result has no effect and delays nothing.
///
/// Serialized, because a busy key occupies a worker that other tests with slow keys need.
@Suite(.timeLimit(.patient), .serialized, .ownThreads) struct LentWorkTests {
    // MARK: - Signatures

    /// The workers of one private key, all of which are busy until the test lets one step run.
    private final class BusyKey: Sendable {
        private let key: WorkKey
        private let gate = DispatchSemaphore(value: 0)
        private let share = max(1, max(2, SocketEventLoop.usableProcessors) - 1)

        init(_ settings: TLSSettings<some TLSRole.Side>, over transport: Transport) async throws {
            let values = settings.values
            key = try TLSContext.context(for: values, over: transport == .stream ? .stream : .datagrams).workKey
            let begun = Locked(0)
            for _ in 0..<share {
                let isAccepted = HandshakeWorkers.shared.perform(key) { [gate] in
                    begun.withLock { $0 += 1 }
                    gate.wait()
                }
                #expect(isAccepted)
            }
            try await eventually("its workers are busy") { [share] in begun.withLock { $0 } == share }
        }

        /// Runs the queued steps, and returns when they are complete.
        func runSteps() {
            let done = DispatchSemaphore(value: 0)
            _ = HandshakeWorkers.shared.perform(key) { done.signal() }
            gate.signal()
            #expect(done.wait(timeout: .now() + Patience.seconds) == .success)
        }

        deinit { for _ in 0..<share { gate.signal() } }
    }

    // Keys of this suite only, so that other tests are not affected.
    private static let clientIdentity = Result {
        try TestCertificates.authority.issue(.client(commonName: "alice"), keyType: .rsa3072).identity()
    }
    private static let serverIdentity = Result {
        try TestCertificates.authority.issue(.server(names: ["localhost"]), keyType: .rsa3072).identity()
    }

    private static func settings(
        _ version: TLSProtocolVersion, busyClient: Bool
    ) throws -> (client: TLSClientSettings, server: TLSServerSettings) {
        var (client, server) = try TestCertificates.mutual()
        if busyClient { client.identity = try clientIdentity.get() } else { server.identity = try serverIdentity.get() }
        return (client.only(version), server.only(version))
    }

    enum End: CaseIterable, Sendable { case disconnected, cancelled, peerLeft }

    /// When the step is complete. In the first two cases its result and the end arrive together.
    enum Completion: CaseIterable, Sendable { case justBeforeTheEnd, justAfterTheEnd, longAfterTheEnd }

    @Test(arguments: pairs(TLSProtocolVersion.tested, [true, false]), pairs(End.allCases, Completion.allCases))
    func aSignatureDoesNotOutliveItsConnection(
        _ side: (version: TLSProtocolVersion, isClient: Bool), _ way: (End, Completion)
    ) async throws {
        let (end, completion) = way
        let settings = try Self.settings(side.version, busyClient: side.isClient)
        let key = try await side.isClient ? BusyKey(settings.client, over: .stream) : BusyKey(settings.server, over: .stream)
        let pair = try await SocketPair()
        let client = Task { _ = try await pair.client.startTLS(settings: settings.client) }
        let server = Task { _ = try await pair.server.startTLS(settings: settings.server) }
        let (busy, other) = side.isClient ? (pair.client, pair.server) : (pair.server, pair.client)
        let (upgrade, otherUpgrade) = side.isClient ? (client, server) : (server, client)
        @Sendable func finish() {
            switch end {
            case .disconnected: busy.disconnect()
            case .cancelled: upgrade.cancel()
            case .peerLeft: other.disconnectWithReset()
            }
        }
        let step = try await busy.held("the step is pending") { connection -> HandshakeWork? in
            guard case .lent(let step)? = connection.data.channel?.layer else { return nil }
            switch completion {
            case .justBeforeTheEnd:
                key.runSteps()
                finish()
            case .justAfterTheEnd:
                finish()
                key.runSteps()
            case .longAfterTheEnd: finish()
            }
            return step
        }
        // While the step runs elsewhere, the connection does not notice its peer.
        if end == .peerLeft, completion == .longAfterTheEnd { key.runSteps() }
        let outcome = await upgrade.outcome
        switch end {
        case .disconnected: #expect(outcome == .failed(.closed))
        case .cancelled: #expect(outcome == .cancelled)
        case .peerLeft:
            // With TLS 1.3, the client's handshake is complete before the server has its signature.
            #expect(outcome != .served || side.isClient && side.version == .tls13)
            busy.disconnect()
        }
        if end != .peerLeft, completion == .longAfterTheEnd {
            // No signature is made for a connection that has closed.
            #expect(step.isCancelled)
            key.runSteps()
        }
        // The signature may have been sent before the close_notify.
        if end == .peerLeft || completion == .longAfterTheEnd { #expect(await otherUpgrade.outcome != .served) }
        #expect(busy.isDisconnected && (outcome == .served || !busy.isSecure))
        try await useAgain(busy)
    }

    /// The result of the old work does not reach the next connection of the socket.
    private func useAgain(_ socket: AsyncSocket) async throws {
        let listener = try RawSocket.listening()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let peer = try listener.accepted()
        try await socket.write("plain")
        #expect(try await peer.received(exactly: 5) == Array("plain".utf8))
        #expect(!socket.isSecure && socket.isConnected)
        socket.disconnect()
    }

    /// A listener does not wait for the signature either.
    @Test(arguments: [true, false]) func aSignatureOverDTLSDoesNotOutliveItsSocket(isClient: Bool) async throws {
        let settings = try Self.settings(.tls12, busyClient: isClient)
        let key = try await isClient ? BusyKey(settings.client, over: .datagrams) : BusyKey(settings.server, over: .datagrams)
        let listener = try DatagramListener(address: .loopback(), dtls: settings.server)
        let serving = listener.echoing()
        let repetitions = Locked(0)
        let relay = try DatagramRelay(to: listener.localPort) { datagram, isFromClient in
            // A flight that is repeated because the busy side sends nothing.
            if isFromClient == !isClient { repetitions.withLock { $0 += 1 } }
            return [datagram]
        }
        defer { relay.close() }
        let client = AsyncUDPSocket()
        client.firstRetransmission = .milliseconds(20)
        try await client.connect(to: "127.0.0.1", port: relay.port)
        let upgrade = Task { _ = try await client.startDTLS(settings: settings.client) }
        try await eventually("the busy side is silent") { repetitions.withLock { $0 } >= 8 }
        #expect(!client.isSecure)
        if isClient {
            upgrade.cancel()
            #expect(await upgrade.outcome == .cancelled)
            key.runSteps()
        }
        await listener.close(timeout: .zero)
        try await serving.value
        #expect(listener.snapshot.openCount == 0 && listener.hub.handshakeCount == 0)
        if !isClient {
            key.runSteps()
            client.disconnect()
            #expect(await upgrade.outcome != .served)
        }
        #expect(!client.isSecure && client.isClosed)
    }

    // MARK: - Closures

    /// A closure that ignores its cancellation, and returns when the test says so.
    private final class Late: Sendable {
        let begun: TestSignal
        private let mayReturn: TestSignal
        private let counts = Locked((begun: 0, returned: 0))

        init() throws { (begun, mayReturn) = (try TestSignal(), try TestSignal()) }

        deinit { mayReturn.fire() }

        func run() async {
            counts.withLock { $0.begun += 1 }
            begun.fire()
            _ = await Task.detached { [mayReturn] in try await mayReturn.wait(within: .patient) }.result
            counts.withLock { $0.returned += 1 }
        }

        var hasReturned: Bool { counts.withLock { $0.returned > 0 } }

        func finish() async throws {
            mayReturn.fire()
            try await eventually("all have returned") { counts.withLock { $0.begun == $0.returned } }
        }
    }

    enum Closure: CaseIterable, Sendable { case trust, serverNames, keyLookup }

    /// A server with one of the closures. It echoes.
    private struct Server {
        let port: UInt16
        let client: TLSClientSettings
        let close: @Sendable () async throws -> Void
        let isEmpty: @Sendable () -> Bool

        init(_ transport: Transport, _ closure: Closure, _ late: Late) throws {
            var (client, server) = (try TestCertificates.client(), try TestCertificates.server())
            switch closure {
            case .trust: break
            case .serverNames:
                server.serverNames = TLSServerNames { [server] _ in
                    await late.run()
                    return server
                }
            case .keyLookup:
                let key = try TLSPreSharedKey(identity: "sensor", key: [UInt8](repeating: 7, count: 16))
                client = .client(serverName: "hub.example.org", preSharedKey: key).patient
                server =
                    .server(
                        preSharedKeys: TLSPreSharedKeys { _ in
                            await late.run()
                            return key
                        }
                    ).patient
                server.policy = .constrainedDevices
            }
            self.client = client
            switch transport {
            case .stream:
                let listener = try SocketListener(address: .loopback(), tls: server)
                let serving = Task { try await listener.run { try await $0.echo() } }
                port = listener.localPort
                close = {
                    await listener.close(timeout: .zero)
                    try await serving.value
                }
                isEmpty = { true }
            case .datagrams:
                let listener = try DatagramListener(address: .loopback(), dtls: server)
                let serving = listener.echoing()
                port = listener.localPort
                close = {
                    await listener.close(timeout: .zero)
                    try await serving.value
                }
                isEmpty = { listener.snapshot.openCount == 0 && listener.hub.handshakeCount == 0 }
            }
        }
    }

    enum LateEnd: CaseIterable, Sendable { case disconnected, cancelled, shutdown }

    private static let closures: [(Transport, Closure)] = [
        (.stream, .trust), (.stream, .serverNames), (.datagrams, .trust), (.datagrams, .serverNames), (.datagrams, .keyLookup),
    ]

    @Test(arguments: closures, LateEnd.allCases)
    func aClosureThatReturnsAfterTheEndChangesNothing(_ way: (transport: Transport, closure: Closure), _ end: LateEnd)
        async throws
    {
        let late = try Late()
        let server = try Server(way.transport, way.closure, late)
        let client = UpgradeEnd(way.transport, hasDelegate: false)
        try await client.connect(toPort: server.port)
        let settings = server.client
        let upgrade = Task {
            guard way.closure == .trust else { return try await client.upgrade(settings) }
            try await client.upgrade(settings) { _ in
                await late.run()
                return true
            }
        }
        try await late.begun.wait()
        switch end {
        case .disconnected: client.close()
        case .cancelled: upgrade.cancel()
        case .shutdown:
            try await server.close()
            #expect(server.isEmpty())
            // A datagram socket does not notice that its peer is gone.
            client.close()
        }
        let outcome = await upgrade.outcome
        #expect(end == .cancelled ? outcome == .cancelled : outcome != .served)
        #expect(!late.hasReturned && client.isOver && !client.isSecure)
        try await late.finish()
        #expect(client.isOver && !client.isSecure)
        #expect(await AsyncSocketsTests.outcome { try await client.send("secret") } != .served)
        if end == .shutdown { return #expect(server.isEmpty()) }
        // The server still serves other clients. The closures now return immediately.
        let next = UpgradeEnd(way.transport, hasDelegate: false)
        try await next.connect(toPort: server.port)
        try await next.upgrade(settings)
        try await next.send("hello")
        #expect(try await next.receive(5) == "hello")
        next.close()
        try await server.close()
    }

    // MARK: - Verdicts of an earlier connection

    /// A delegate's verdict on the peer of an earlier connection does not count for the next one.
    @Test(arguments: [true, false]) func aVerdictOnAnEarlierPeerDoesNotCount(_ verdict: Bool) async throws {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        var settings = try TestCertificates.client()
        settings.trustEvaluation = .delegate
        var verdicts: [@Sendable (Bool) -> Void] = []
        for _ in 0..<2 {
            let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server())])
            try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
            try await recorder.connected()
            try socket.beginTLS(settings: settings)
            verdicts.append(try await recorder.asked().1)
            if verdicts.count == 1 {
                socket.disconnect()
                _ = try await recorder.disconnected()
            }
        }
        verdicts[0](verdict)
        await socket.settle()
        #expect(!socket.isSecure && socket.isConnected && recorder.unread.isEmpty)
        verdicts[1](!verdict)
        verdicts[0](verdict)
        if verdict {
            #expect(try await recorder.disconnected()?.code == .tls)
        } else {
            try await recorder.secured()
        }
        socket.disconnect()
    }

    /// The same with the closures of two tasks.
    @Test func aTasksLateVerdictDoesNotCountForTheNextPeer() async throws {
        let (socket, first, second) = (AsyncSocket(), try Late(), try Late())
        var upgrades: [Task<Void, any Error>] = []
        for late in [first, second] {
            let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server())])
            try await socket.connect(to: "127.0.0.1", port: peer.port)
            upgrades.append(
                Task {
                    try await socket.startTLS(settings: TestCertificates.client()) { _ in
                        await late.run()
                        return late === first
                    }
                })
            try await late.begun.wait()
            if late === first {
                socket.disconnect()
                #expect(await upgrades[0].outcome == .failed(.closed))
            }
        }
        try await first.finish()
        await socket.settle()
        #expect(!socket.isSecure && socket.isConnected)
        try await second.finish()
        #expect(await upgrades[1].outcome == .failed(.tls))
        #expect(!socket.isSecure && !socket.isConnected)
    }
}

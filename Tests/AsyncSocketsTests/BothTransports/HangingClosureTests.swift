import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A user closure that does not return does not delay deadlines or cancellation, and does not use up a
/// listener's handshake permits.
@Suite(.timeLimit(.patient)) struct HangingClosureTests {
    enum Transport: CaseIterable, Sendable { case stream, datagrams }

    /// A closure that ignores cancellation and returns when the test ends.
    private final class Hanging: Sendable {
        let begun: TestSignal
        let cancelled: TestSignal
        private let release: TestSignal
        private let counts = Locked((begun: 0, returned: 0))

        init() throws {
            begun = try TestSignal()
            cancelled = try TestSignal()
            release = try TestSignal()
        }

        deinit { release.fire() }

        var hasReturned: Bool { counts.withLock { $0.returned > 0 } }
        var begunCount: Int { counts.withLock { $0.begun } }

        func hang() async {
            counts.withLock { $0.begun += 1 }
            begun.fire()
            let released = Task.detached { [release] in try await release.wait(within: .patient) }
            await withTaskCancellationHandler {
                _ = await released.result
            } onCancel: {
                cancelled.fire()
            }
            counts.withLock { $0.returned += 1 }
        }

        func end() { release.fire() }
    }

    /// A client whose peer performs the handshake.
    private struct Client: Sendable {
        let upgrade: @Sendable (TLSClientSettings, Hanging) async throws -> Void
        let close: @Sendable () -> Void
        let isOpen: @Sendable () -> Bool
        let peerName: String
        private let peer: any Sendable

        init(_ transport: Transport) async throws {
            switch transport {
            case .stream:
                let (socket, peer) = try await connectedSocket([.startTLS(try TestCertificates.server())])
                self.peer = peer
                upgrade = { settings, hanging in
                    try await socket.startTLS(settings: settings) { _ in
                        await hanging.hang()
                        return true
                    }
                }
                close = { socket.disconnect() }
                isOpen = { socket.isConnected }
                peerName = "\(try #require(socket.connectedAddress))"
            case .datagrams:
                let listener = try DatagramListener(address: .loopback(), dtls: TestCertificates.server())
                let serving = Task { try await listener.run { _ = try await $0.receive(timeout: Duration?.none) } }
                peer = [listener, serving] as [any Sendable]
                let socket = AsyncUDPSocket()
                try await socket.connect(to: "127.0.0.1", port: listener.localPort)
                upgrade = { settings, hanging in
                    try await socket.startDTLS(settings: settings) { _ in
                        await hanging.hang()
                        return true
                    }
                }
                close = { socket.disconnect() }
                isOpen = { !socket.isClosed }
                peerName = "\(try #require(socket.connectedAddress))"
            }
        }
    }

    enum End: CaseIterable, Sendable {
        case trustTimeout, cancellation, disconnect

        var outcome: Outcome {
            switch self {
            case .trustTimeout: .failed(.trustTimeout)
            case .cancellation: .cancelled
            case .disconnect: .failed(.closed)
            }
        }
    }

    @Test(arguments: Transport.allCases, End.allCases)
    func theCallEndsBeforeTheDecisionReturns(_ transport: Transport, _ end: End) async throws {
        let client = try await Client(transport)
        let hanging = try Hanging()
        defer { hanging.end() }
        var settings = try TestCertificates.client()
        if end == .trustTimeout { settings.trustTimeout = .milliseconds(50) }
        let upgrade = Task { [settings] in try await client.upgrade(settings, hanging) }
        try await hanging.begun.wait(within: .patient)
        if end == .cancellation { upgrade.cancel() }
        if end == .disconnect { client.close() }
        #expect(await upgrade.outcome == end.outcome)
        #expect(!hanging.hasReturned)
        #expect(!client.isOpen())
        try await hanging.cancelled.wait(within: .patient)
    }

    /// On a busy machine, the handshake itself may take longer than the first deadline.
    @Test(arguments: Transport.allCases)
    func aDeadlineAroundTheDecisionHolds(_ transport: Transport) async throws {
        for deadline in [1.0, 10, 80] {
            let client = try await Client(transport)
            let hanging = try Hanging()
            defer { hanging.end() }
            let settings = try TestCertificates.client()
            let outcome = await outcome {
                try await withDeadline(.seconds(deadline)) { try await client.upgrade(settings, hanging) }
            }
            #expect(outcome == .failed(.deadlineExceeded))
            #expect(!hanging.hasReturned)
            #expect(!client.isOpen())
            guard hanging.begunCount > 0 else { continue }
            return try await hanging.cancelled.wait(within: .patient)
        }
        Issue.record("the trust closure was never called")
    }

    /// A decision that hangs for the first two peers.
    private func decision(_ hanging: Hanging) -> SocketListener.TrustDecision {
        { _ in
            if hanging.begunCount < 2 { await hanging.hang() }
            return true
        }
    }

    @Test func decisionsThatHangTakeNoPlaceOfAListener() async throws {
        let (clientSettings, serverSettings) = try TestCertificates.mutual()
        var settings = serverSettings
        settings.trustTimeout = .milliseconds(50)
        let hanging = try Hanging()
        defer { hanging.end() }
        let listener = try SocketListener(address: .loopback(), tls: settings, trust: decision(hanging))
        listener.maximumHandshakes = 2
        let serving = Task { try await listener.run { try await $0.echo() } }
        for _ in 0..<2 {
            let client = AsyncSocket()
            // With TLS 1.3 the client's handshake is complete before the server decides.
            await #expect(throws: AsyncSocketError.self) {
                try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: clientSettings)
                _ = try await client.read(exactly: 1, timeout: .patient)
            }
        }
        // On a busy machine, decisions start late.
        try await eventually("two hang") { hanging.begunCount == 2 }
        try listener.replaceTLS(serverSettings)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: clientSettings)
        try await client.write("x")
        #expect(try await client.read(exactly: 1, timeout: .patient) == Data("x".utf8))
        #expect(hanging.begunCount == 2 && !hanging.hasReturned)
        #expect(listener.preparation.slots.takenCount == 0)
        client.disconnect()
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test func decisionsThatHangTakeNoPlaceOfADatagramListener() async throws {
        let (clientSettings, serverSettings) = try TestCertificates.mutual()
        var settings = serverSettings
        settings.trustTimeout = .milliseconds(50)
        let hanging = try Hanging()
        defer { hanging.end() }
        let listener = try DatagramListener(address: .loopback(), dtls: settings, trust: decision(hanging))
        listener.maximumHandshakes = 2
        let serving = Task { try await listener.run { try await $0.send($0.receive(timeout: Duration?.none).data) } }
        for _ in 0..<2 {
            let client = AsyncUDPSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(settings: clientSettings) }
        }
        // On a busy machine, decisions start late.
        try await eventually("two hang") { hanging.begunCount == 2 }
        try listener.replaceTLS(serverSettings)
        let client = AsyncUDPSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.startDTLS(settings: clientSettings)
        try await client.send(Data("x".utf8))
        #expect(try await client.receive(timeout: .patient).data == Data("x".utf8))
        #expect(hanging.begunCount == 2 && !hanging.hasReturned)
        client.disconnect()
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// A closure that ignores its cancellation may spin, and would stop the other connections of a loop.
    @Test func decisionsRunOnNoLoop() async throws {
        let (clientSettings, serverSettings) = try TestCertificates.mutual()
        let loops = try (0..<64).map { _ in try SocketEventLoop.next() }
        let onLoop = Locked<[Bool]>([])
        let decision: SocketListener.TrustDecision = { _ in
            onLoop.withLock { $0.append(loops.contains { $0.isCurrent }) }
            return true
        }
        let listener = try SocketListener(address: .loopback(), tls: serverSettings, trust: decision)
        let serving = Task { try await listener.run { try await $0.echo() } }
        try await AsyncSocket.withConnection(
            to: "127.0.0.1", port: listener.localPort, tls: clientSettings, trust: decision
        ) { client in
            try await client.write("x")
            _ = try await client.read(exactly: 1, timeout: .patient)
        }
        await listener.close(timeout: .zero)
        try await serving.value
        #expect(onLoop.withLock { $0 } == [false, false])
    }

    /// The warnings are limited, and another test may cause one at the same time.
    @Test(arguments: Transport.allCases) func aDecisionThatHangsIsLogged(_ transport: Transport) async throws {
        var (names, hangings): ([String], [Hanging]) = ([], [])
        defer { for hanging in hangings { hanging.end() } }
        try await eventually("a warning") {
            let client = try await Client(transport)
            let hanging = try Hanging()
            LogRecorder.expect("peer", client.peerName)
            names.append(client.peerName)
            hangings.append(hanging)
            var settings = try TestCertificates.client()
            settings.trustTimeout = .milliseconds(200)
            #expect(await outcome { try await client.upgrade(settings, hanging) } == .failed(.trustTimeout))
            #expect(!hanging.hasReturned)
            return names.flatMap { LogRecorder.lines("peer", $0) }
                .contains { $0.message.hasPrefix("a trust closure has not returned") }
        }
    }

    /// The function that chooses a server's settings is cancelled when the handshake times out.
    @Test func aFunctionForServerNamesThatHangsEndsWithTheHandshake() async throws {
        for timeout in [0.2, 10, 80] {
            let hanging = try Hanging()
            defer { hanging.end() }
            var settings = try TestCertificates.server()
            settings.handshakeTimeout = .seconds(timeout)
            settings.serverNames = TLSServerNames { _ in
                await hanging.hang()
                return nil
            }
            let pair = try await SocketPair()
            let client = Task { try await pair.client.startTLS(settings: TestCertificates.client()) }
            #expect(await outcome { try await pair.server.startTLS(settings: settings) } == .failed(.handshakeTimeout))
            _ = await client.result
            #expect(!hanging.hasReturned)
            guard hanging.begunCount > 0 else { continue }
            return try await hanging.cancelled.wait(within: .patient)
        }
        Issue.record("the function was never called")
    }
}

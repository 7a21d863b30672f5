import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Limits of time, length and count, and their boundaries.
@Suite(.timeLimit(.patient)) struct LimitTests {
    /// The bytes are already available, so the read fails without waiting.
    @Test func aReadThatIsTooLongEndsTheConnection() async throws {
        for isSecure in [false, true] {
            let pair = try await SocketPair(isSecure: isSecure)
            try await pair.client.write("a line that is much too long\n")
            #expect(try await pair.server.read(exactly: 2) == Data("a ".utf8))
            #expect(await outcome { try await pair.server.readLine(maxLength: 5) } == .failed(.readMaxedOut))
            #expect(pair.server.isDisconnected)
            #expect(await outcome { try await pair.server.read() } == .failed(.readMaxedOut))
        }
    }

    /// A read that takes longer than the connect timeout.
    @Test func theTimeOfConnectingEndsWithTheConnection() async throws {
        for seconds in [5.0, 30] {
            let peer = try ScriptedPeer.listening([.wait(for: try TestSignal())])
            defer { peer.stop() }
            let socket = AsyncSocket()
            let connecting = await outcome {
                try await socket.connect(to: "127.0.0.1", port: peer.port, timeout: .seconds(seconds))
            }
            // A busy machine may take longer than five seconds. Then try again with a longer timeout.
            if connecting == .failed(.connectTimeout), seconds == 5 { continue }
            try #require(connecting == .served)
            let reading = await outcome { try await socket.read(timeout: .seconds(seconds + 0.3)) }
            #expect(reading == .failed(.readTimeout))
            break
        }
    }

    /// Even if both are processed in the same turn.
    @Test(.unmodifiedKernel, arguments: [false, true]) func aDisconnectSendsTheWriteBeforeIt(isOneTurn: Bool) async throws {
        let peer = try ScriptedPeer.listening([.expect("."), .expectEnd])
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        // One byte, so that the kernel cannot accept only a part.
        let say = { @Sendable in
            socket.write(Data(".".utf8), tag: 1)
            socket.disconnect()
        }
        // Inside the turn, which then processes both.
        if isOneTurn { socket.perform { _ in say() } } else { say() }
        #expect(try await peer.finish().texts == ["."])
    }

    @Test func aListenerHandlesOneHandshakeAtLeast() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        listener.maximumHandshakes = 0
        #expect(listener.maximumHandshakes == 1)
        let running = Task { try await listener.run { try await $0.write("hello") } }
        let tls = try TestCertificates.client()
        let bytes = try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: tls) {
            try await $0.read(exactly: 5)
        }
        #expect(bytes == Data("hello".utf8))
        await listener.close(timeout: .patient)
        try await running.value
    }

    @Test(arguments: [TLSTrustEvaluation.delegate, .manual])
    func aListenerThatNeedsADecisionDoesNotBeginWithoutOne(_ evaluation: TLSTrustEvaluation) throws {
        var settings = try TestCertificates.mutual().server
        settings.trustEvaluation = evaluation
        let error = #expect(throws: AsyncSocketError.self) {
            try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        }
        #expect(error?.code == .badConfiguration)
    }
}

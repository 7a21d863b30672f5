import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import Testing

@Suite struct TamperingRelayTests {
    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    @Test func bytesAndEndsPassInBothDirections() async throws {
        let server = try ScriptedPeer.listening([.send("220\r\n"), .expect(through: "\r\n"), .expectEnd, .send("bye"), .finish])
        let relay = try TamperingRelay(toPort: server.port)
        let client = try RawSocket.client(port: relay.port)
        try client.send("QUIT\r\n")
        client.finish()
        #expect(try client.receiveAll() == "220\r\nbye")
        _ = try await server.finish()
        try await relay.finish()
        #expect(relay.original == WireTranscript(fromClient: Array("QUIT\r\n".utf8), fromServer: Array("220\r\nbye".utf8)))
        #expect(relay.delivered == relay.original)
    }

    @Test func injectedBytesAreDeliveredButWereNeverSent() async throws {
        let server = try ScriptedPeer.listening([.expect("STARTTLS\r\n"), .send("220 go\r\n"), .finish])
        let relay = try TamperingRelay(toPort: server.port, fromServer: [.inject(Array("250 evil\r\n".utf8), at: 8)])
        let client = try RawSocket.client(port: relay.port)
        try client.send("STARTTLS\r\n")
        #expect(try client.receiveAll() == "220 go\r\n250 evil\r\n")
        client.finish()
        try await relay.finish()
        #expect(text(relay.original.fromServer) == "220 go\r\n")
        #expect(text(relay.delivered.fromServer) == "220 go\r\n250 evil\r\n")
    }

    @Test func truncationEndsOneDirectionOnly() async throws {
        let server = try ScriptedPeer.listening([.send("0123456789"), .expect("still here")])
        let relay = try TamperingRelay(toPort: server.port, fromServer: [.truncate(at: 4)])
        let client = try RawSocket.client(port: relay.port)
        #expect(try client.receiveAll() == "0123")
        try client.send("still here")
        _ = try await server.finish()
        #expect(text(relay.original.fromServer) == "0123456789")
    }

    @Test func resetReachesBothSides() async throws {
        // The client sends first, because `connect` itself would fail if a reset arrived while it is waiting.
        let server = try ScriptedPeer.listening([.expect("x"), .send("0123456789"), .expectReset])
        let relay = try TamperingRelay(toPort: server.port, fromServer: [.reset(at: 4)])
        let client = try RawSocket.client(port: relay.port)
        try client.send("x")
        let failure = #expect(throws: LoopbackError.self) {
            while try !client.receiveText().isEmpty {}
        }
        #expect(failure?.errorNumber == ECONNRESET)
        _ = try await server.finish()
        try await relay.finish()
    }

    @Test func resetOfTheServerReachesTheClient() async throws {
        let server = try ScriptedPeer.listening([.expect("x"), .reset])
        let relay = try TamperingRelay(toPort: server.port)
        let client = try RawSocket.client(port: relay.port)
        try client.send("x")
        let failure = #expect(throws: LoopbackError.self) { try client.receiveText() }
        #expect(failure?.errorNumber == ECONNRESET)
        try await relay.finish()
    }

    @Test func heldBytesPassWhenTheSignalIsGiven() async throws {
        let signal = try TestSignal()
        let server = try ScriptedPeer.listening([.send("0123456789"), .finish])
        let relay = try TamperingRelay(toPort: server.port, fromServer: [.hold(at: 4, until: signal)])
        let client = try RawSocket.client(port: relay.port)
        #expect(try client.receiveText() == "0123")
        #expect(text(relay.delivered.fromServer) == "0123")
        signal.fire()
        #expect(try client.receiveAll() == "456789")
    }

    @Test func missingServerIsAnError() async throws {
        let closed = try RawSocket.refusing()
        let relay = try TamperingRelay(toPort: closed.localPort)
        let client = try RawSocket.client(port: relay.port)
        let error = await #expect(throws: LoopbackError.self) { try await relay.finish() }
        #expect(error?.errorNumber == ECONNREFUSED)
        withExtendedLifetime((client, closed)) {}
    }

    @Test func silenceIsAnError() async throws {
        let server = try ScriptedPeer.listening([.expectReset])
        let relay = try TamperingRelay(toPort: server.port, timeout: .milliseconds(20))
        let client = try RawSocket.client(port: relay.port)
        let error = await #expect(throws: LoopbackError.self) { try await relay.finish() }
        #expect(error?.code == .timedOut)
        _ = try await server.finish()
        withExtendedLifetime(client) {}
    }

    @Test func stopEndsTheRelayWithoutAnError() async throws {
        let server = try ScriptedPeer.listening([.send("x"), .expectReset])
        let relay = try TamperingRelay(toPort: server.port)
        let client = try RawSocket.client(port: relay.port)
        #expect(try client.receiveText() == "x")
        relay.stop()
        try await relay.finish()
        _ = try await server.finish()
    }
}

import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import Testing

@Suite struct ScriptedPeerTests {
    @Test func stepsArePerformedInOrder() async throws {
        let peer = try ScriptedPeer.listening([
            .send("220 ready\r\n"), .expect(through: "\r\n"), .expect("QUIT"), .send("221 bye\r\n"), .finish, .expectEnd,
        ])
        let client = try RawSocket.client(port: peer.port)
        #expect(try client.receive(through: "\r\n") == "220 ready\r\n")
        try client.send("EHLO me\r\nQUIT")
        #expect(try client.receiveAll() == "221 bye\r\n")
        client.finish()
        let report = try await peer.finish()
        #expect(report.texts == ["EHLO me\r\n", "QUIT"])
        #expect(String(decoding: report.transcript.fromServer, as: UTF8.self) == "220 ready\r\n221 bye\r\n")
        #expect(String(decoding: report.transcript.fromClient, as: UTF8.self) == "EHLO me\r\nQUIT")
    }

    @Test func twoPeersCanTalkToEachOther() async throws {
        let server = try ScriptedPeer.listening([.expect("ping"), .send("pong"), .expectEnd])
        let client = try ScriptedPeer.connecting(toPort: server.port, [.send("ping"), .expect("pong"), .finish])
        let report = try await client.finish()
        #expect(report.transcript == WireTranscript(fromClient: Array("ping".utf8), fromServer: Array("pong".utf8)))
        _ = try await server.finish()
    }

    @Test func wrongByteFailsTheStepAtOnceAndResets() async throws {
        let peer = try ScriptedPeer.listening([.expect("EHLO"), .expect("STARTTLS")])
        let client = try RawSocket.client(port: peer.port)
        try client.send("EHLOSTOP")
        let error = await #expect(throws: LoopbackError.self) { try await peer.finish() }
        #expect(error?.code == .unexpectedBytes)
        #expect(error?.step == 1)
        let failure = #expect(throws: LoopbackError.self) { try client.receiveText() }
        #expect(failure?.errorNumber == ECONNRESET)
    }

    @Test func silenceOfTheOtherSideIsAnError() async throws {
        let peer = try ScriptedPeer.listening([.expect("EHLO")], timeout: .milliseconds(20))
        let client = try RawSocket.client(port: peer.port)
        let error = await #expect(throws: LoopbackError.self) { try await peer.finish() }
        #expect(error?.code == .timedOut)
        withExtendedLifetime(client) {}
    }

    @Test func noOneConnectingIsAnError() async throws {
        let peer = try ScriptedPeer.listening([], timeout: .milliseconds(20))
        let error = await #expect(throws: LoopbackError.self) { try await peer.finish() }
        #expect(error?.code == .timedOut)
    }

    @Test func endOfTheOtherSideIsAnErrorWhereBytesAreExpected() async throws {
        let peer = try ScriptedPeer.listening([.expect(through: "\n")])
        let client = try RawSocket.client(port: peer.port)
        try client.send("half a li")
        client.finish()
        let error = await #expect(throws: LoopbackError.self) { try await peer.finish() }
        #expect(error?.code == .ended)
    }

    @Test func resetReachesTheOtherSide() async throws {
        let peer = try ScriptedPeer.listening([.expect("x"), .reset])
        let client = try RawSocket.client(port: peer.port)
        try client.send("x")
        let failure = #expect(throws: LoopbackError.self) { try client.receiveText() }
        #expect(failure?.errorNumber == ECONNRESET)
        _ = try await peer.finish()
    }

    @Test func resetOfTheOtherSideCanBeExpected() async throws {
        let server = try ScriptedPeer.listening([.expectReset])
        let client = try ScriptedPeer.connecting(toPort: server.port, [.send("x"), .reset])
        _ = try await client.finish()
        _ = try await server.finish()
    }

    @Test func connectionStaysOpenAfterTheLastStepUntilTheOtherSideEnds() async throws {
        let peer = try ScriptedPeer.listening([.send("last")])
        let client = try RawSocket.client(port: peer.port)
        _ = try await peer.finish()
        #expect(try client.receiveText() == "last")
        try client.send("too late to be expected")
        client.finish()
        #expect(try client.receiveText() == "", "the peer drops what still comes, and then closes in order")
    }

    @Test func stopEndsAScriptThatWaits() async throws {
        let never = try TestSignal()
        let peer = try ScriptedPeer.listening([.wait(for: never)])
        let client = try RawSocket.client(port: peer.port)
        peer.stop()
        let error = await #expect(throws: LoopbackError.self) { try await peer.finish() }
        #expect(error?.code == .stopped)
        withExtendedLifetime(client) {}
    }

    @Test func signalsGoBothWays() async throws {
        let reached = try TestSignal()
        let go = try TestSignal()
        let peer = try ScriptedPeer.listening([.fire(reached), .wait(for: go), .send("went")])
        let client = try RawSocket.client(port: peer.port)
        try await reached.wait()
        #expect(!go.hasFired)
        go.fire()
        #expect(go.hasFired)
        #expect(try client.receiveText() == "went")
        _ = try await peer.finish()
    }

    @Test func signalThatIsNotGivenTimesOut() async throws {
        let signal = try TestSignal()
        let error = await #expect(throws: LoopbackError.self) { try await signal.wait(within: .milliseconds(5)) }
        #expect(error?.code == .timedOut)
    }

    @Test func piecesArriveWhole() async throws {
        let text = String(repeating: "0123456789", count: 100)
        let peer = try ScriptedPeer.listening([.send(text, inPiecesOf: 3), .finish])
        let client = try RawSocket.client(port: peer.port)
        #expect(try client.receiveAll() == text)
        let report = try await peer.finish()
        #expect(report.transcript.fromServer.count == text.utf8.count)
    }

    @Test func clientHelloIsLeftForTheHandshake() async throws {
        let peer = try ScriptedPeer.listening([.expectClientHello, .expect("\u{16}\u{3}\u{1}\0\u{5}hello")])
        let client = try RawSocket.client(port: peer.port)
        try client.send("\u{16}\u{3}\u{1}\0\u{5}he")
        try client.send("llo")
        _ = try await peer.finish()
    }

    @Test func refusedConnectionIsAnErrorWithItsNumber() async throws {
        let closed = try RawSocket.refusing()
        let peer = try ScriptedPeer.connecting(toPort: closed.localPort, [])
        let error = await #expect(throws: LoopbackError.self) { try await peer.finish() }
        #expect(error?.errorNumber == ECONNREFUSED)
        withExtendedLifetime(closed) {}
    }
}

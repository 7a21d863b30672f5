import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import Testing

@Suite struct FloodTests {
    private func connected(_ clock: TestClock = TestClock()) throws -> (RawPeer, TLSEngine) {
        let server = try Fixture(.tls13).engine(.server) { clock.now }
        let peer = try RawPeer(.tls13)
        peer.shakeHands(with: server)
        try #require(server.handshake().isComplete)
        return (peer, server)
    }

    /// A hundred per second are allowed indefinitely.
    @Test func asManyKeyUpdatesAsAreAllowedAreFine() throws {
        let clock = TestClock()
        let (peer, server) = try connected(clock)
        clock.advance(milliseconds: 1000)
        for round in 0..<100 {
            clock.advance(milliseconds: 100)
            for _ in 0..<10 { peer.sendKeyUpdate() }
            peer.send("data \(round)")
            peer.carryTo(server)
            #expect(server.readAll().text == "data \(round)")
            peer.carryFrom(server)
            _ = peer.read()
        }
    }

    @Test func aFloodOfKeyUpdatesEndsTheConnectionWithinOneRead() throws {
        let (peer, server) = try connected()
        for _ in 0..<5_000 { peer.sendKeyUpdate() }
        peer.send("never read")
        peer.carryTo(server)
        let (text, end) = server.readAll()
        #expect(text.isEmpty)
        #expect(end.error?.code == .tooManyKeyUpdates)
        #expect(end.error?.sentAlert == .unexpectedMessage)
        // A hundred responses and the alert instead of 5,000.
        #expect(server.output.count < 102 * 30)
        #expect(server.received.count > 100_000)
    }

    /// A slow but compliant peer that changes its key with every record for eleven hours.
    @Test func aKeyUpdateForEveryRecordIsNoFlood() throws {
        let clock = TestClock()
        let (peer, server) = try connected(clock)
        for _ in 0..<4_000 {
            clock.advance(milliseconds: 10_000)
            peer.sendKeyUpdate()
            peer.send("x")
            peer.carryTo(server)
            try #require(server.readAll().text == "x")
            peer.carryFrom(server)
        }
    }

    /// A slow peer that receives data but does not send any between its KeyUpdates.
    @Test func keyUpdatesWithoutDataAreNoFloodInTime() throws {
        let clock = TestClock()
        let (peer, server) = try connected(clock)
        for _ in 0..<1_000 {
            clock.advance(milliseconds: 10)
            peer.sendKeyUpdate()
            peer.carryTo(server)
            try #require(server.readAll().end.isIncomplete)
            try #require(server.write("y").accepted == 1)
            peer.carryFrom(server)
        }
    }

    @Test func dataBetweenThemMakesAFloodNoBetter() throws {
        let (peer, server) = try connected()
        var rounds = 0
        while rounds < 1_000 {
            for _ in 0..<3 { peer.sendKeyUpdate() }
            peer.send("x")
            peer.carryTo(server)
            guard server.readAll().end.isIncomplete else { break }
            rounds += 1
        }
        #expect((30..<34).contains(rounds))
        #expect(server.readAll().end.error?.code == .tooManyKeyUpdates)
    }

    @Test func anHourOfSilenceEarnsNoMoreThanTheBurst() throws {
        let clock = TestClock()
        let (peer, server) = try connected(clock)
        clock.advance(milliseconds: 3_600_000)
        for _ in 0..<101 { peer.sendKeyUpdate() }
        peer.carryTo(server)
        #expect(server.readAll().end.error?.code == .tooManyKeyUpdates)
    }

    /// A used-up allowance is not restored.
    @Test func aFloodIsNotForgotten() throws {
        let clock = TestClock()
        let (peer, server) = try connected(clock)
        for _ in 0..<150 { peer.sendKeyUpdate() }
        peer.carryTo(server)
        _ = server.readAll()
        clock.advance(milliseconds: 3_600_000)
        #expect(server.readAll().end.error?.code == .tooManyKeyUpdates)
        #expect(server.write("x").error?.code == .tooManyKeyUpdates)
    }

    @Test func theAlertOfAFloodArrives() throws {
        let (peer, server) = try connected()
        for _ in 0..<150 { peer.sendKeyUpdate() }
        peer.carryTo(server)
        _ = server.readAll()
        peer.carryFrom(server)
        #expect(peer.read() == nil)
        #expect(peer.lastAlert() == TLSAlert.unexpectedMessage.rawValue)
    }

    @Test func theCountOfAFloodGoesOnAcrossReads() throws {
        let (peer, server) = try connected()
        var failed = false
        for _ in 0..<102 where !failed {
            peer.sendKeyUpdate()
            peer.carryTo(server)
            failed = server.readAll().end.error?.code == .tooManyKeyUpdates
        }
        #expect(failed)
    }

    @Test func aFloodOfTicketsEndsTheConnection() throws {
        var fixture = try Fixture(.tls13)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        fixture.client.trustRoots = try fixture.authority.roots
        let client = try TLSEngine(context: TLSContext.context(for: fixture.client), settings: fixture.client)
        let peer = try RawPeer(.tls13, serverPEM: issued.pem)
        peer.shakeHands(with: client)
        try #require(client.handshake().isComplete)
        for _ in 0..<200 {
            SSL_new_session_ticket(peer.ssl)
            SSL_do_handshake(peer.ssl)
        }
        peer.carryTo(client)
        #expect(client.readAll().end.error?.code == .tooManyKeyUpdates)
    }

    @Test func answersThatNoOneTakesStopTheReading() throws {
        let clock = TestClock()
        let (peer, server) = try connected(clock)
        clock.step(milliseconds: 10)
        for _ in 0..<400 {
            for _ in 0..<32 { peer.sendKeyUpdate() }
            peer.send("x")
        }
        peer.carryTo(server)
        var total = server.readAll().text.count
        #expect(total < 400)
        #expect(server.output.count >= TLSEngine.outputLimitForReading)
        #expect(server.output.count < TLSEngine.outputLimitForReading + 64 * 1024)
        #expect(server.readAll().end.isIncomplete)
        while server.output.count > 0 {
            peer.carryFrom(server)
            total += server.readAll().text.count
        }
        #expect(total == 400)
    }

    @Test func renegotiationIsRefused() throws {
        let fixture = try Fixture(.tls12)
        let server = try TLSEngine(context: TLSContext.context(for: fixture.server), settings: fixture.server)
        let peer = try RawPeer(.tls12)
        peer.shakeHands(with: server)
        try #require(server.handshake().isComplete)
        SSL_renegotiate(peer.ssl)
        SSL_do_handshake(peer.ssl)
        peer.carryTo(server)
        #expect(server.readAll().end.isIncomplete)
        peer.carryFrom(server)
        #expect(SSL_do_handshake(peer.ssl) <= 0)
        #expect(peer.lastAlert() == TLSAlert.noRenegotiation.rawValue || ERR_peek_last_error() != 0)
    }

    @Test func aTLS12FloodOfRenegotiationRequestsEndsTheConnection() throws {
        let fixture = try Fixture(.tls12)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), signedBy: .root)
        let client = try TLSEngine(context: TLSContext.context(for: fixture.client), settings: fixture.client)
        let peer = try RawPeer(.tls12, serverPEM: issued.pem)
        peer.shakeHands(with: client)
        try #require(client.handshake().isComplete)
        var ended = false
        for _ in 0..<200 where !ended {
            SSL_renegotiate(peer.ssl)
            SSL_do_handshake(peer.ssl)
            peer.carryTo(client)
            ended = client.readAll().end.error != nil
            peer.carryFrom(client)
            ERR_clear_error()
        }
        #expect(client.output.count < 100_000)
    }
}

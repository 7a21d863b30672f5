import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTLS
import Testing

/// Floods in TLS 1.2 with records that OpenSSL itself does not send.
@Suite struct FloodTLS12Tests {
    private static let warning: [UInt8] = [1, 90]
    private static let helloRequest: [UInt8] = [0, 0, 0, 0]

    private func connected(_ side: Side, _ clock: TestClock) throws -> (victim: TLSEngine, peer: RawPeer, records: SealedRecords)
    {
        let fixture = try Fixture(.tls12)
        let (victim, peer): (TLSEngine, RawPeer) =
            switch side {
            case .server: (try fixture.engine(.server) { clock.now }, try RawPeer(.tls12))
            case .client: try fixture.clientAndServer(.tls12) { clock.now }
            }
        try peer.offer(ciphers: "ECDHE-ECDSA-AES256-GCM-SHA384")
        peer.shakeHands(with: victim)
        try #require(victim.handshake().isComplete)
        return (victim, peer, try SealedRecords(writingAs: peer, isServer: side == .client))
    }

    @Test(arguments: Side.allCases)
    func warningsWithDataBetweenAreAFlood(side: Side) throws {
        let clock = TestClock()
        let (victim, _, records) = try connected(side, clock)
        var rounds = 0
        while rounds < 200 {
            victim.receive(try records.record(21, Self.warning) + records.record(23, [120]))
            guard victim.readAll().text == "x" else { break }
            rounds += 1
        }
        #expect((80..<101).contains(rounds))
        #expect(victim.readAll().end.error?.code == .tooManyKeyUpdates)
        #expect(victim.readAll().end.error?.fault == .peer)
    }

    @Test func requestsToRenegotiateAreAFlood() throws {
        let clock = TestClock()
        let (client, peer, records) = try connected(.client, clock)
        for _ in 0..<200 { client.receive(try records.record(22, Self.helloRequest) + records.record(23, [120])) }
        let (text, end) = client.readAll()
        #expect((80..<101).contains(text.count))
        #expect(end.error?.code == .tooManyKeyUpdates)
        #expect(client.output.count < 101 * 40)
        peer.carryFrom(client)
        // OpenSSL has no function to send a chosen alert here. The poison (EngineBIO, rule 6) causes this
        // one.
        #expect(end.error?.sentAlert == .recordOverflow)
    }

    @Test(arguments: Side.allCases)
    func aWarningNowAndThenIsNoFlood(side: Side) throws {
        let clock = TestClock()
        let (victim, _, records) = try connected(side, clock)
        for _ in 0..<1_000 {
            clock.advance(milliseconds: 10)
            victim.receive(try records.record(21, Self.warning) + records.record(23, [120]))
            try #require(victim.readAll().text == "x")
        }
    }

    /// OpenSSL's own limit.
    @Test(arguments: Side.allCases)
    func emptyRecordsInARowAreAFlood(side: Side) throws {
        let (victim, _, records) = try connected(side, TestClock())
        for _ in 0..<40 { victim.receive(try records.record(23, [])) }
        let error = victim.readAll().end.error
        #expect(error?.fault == .peer)
        #expect(error?.sentAlert == .unexpectedMessage)
    }
}

import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// Abandoning a handshake notifies the peer.
@Suite(.ownThreads) struct AbandonedHandshakeTests {
    /// Performs the handshake until the victim has received and handled `limit` bytes, and then abandons it.
    /// Returns false if it was already complete.
    private func abandon(_ pair: EnginePair, _ side: Side, after limit: Int) -> Bool {
        let (victim, other) = side == .server ? (pair.server, pair.client) : (pair.client, pair.server)
        var total = 0
        while true {
            let answer = victim.handshake()
            guard !answer.isComplete else { return false }
            Self.move(victim.output, to: other.received)
            _ = other.handshake()
            let bytes = Array(other.output.readableBytes).prefix(limit - total)
            guard !bytes.isEmpty else { break }
            other.output.consume(bytes.count)
            victim.receive(Array(bytes))
            total += bytes.count
        }
        victim.abandonHandshake()
        return true
    }

    private static func move(_ output: PreBuffer, to received: PreBuffer) {
        received.append(output.readableBytes)
        output.consume(output.count)
    }

    @Test(arguments: versions, Side.allCases)
    func thePeerLearnsOfItWhereverItHappens(version: TLSProtocolVersion, side: Side) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        let count = try fixture.bytesReceived(atServer: side == .server)
        var alerts: Set<TLSAlert> = []
        for limit in 0..<count {
            let pair = try fixture.pair()
            guard abandon(pair, side, after: limit) else { continue }
            let (victim, other) = side == .server ? (pair.server, pair.client) : (pair.client, pair.server)
            #expect((7...64).contains(victim.output.count), "after \(limit) bytes: \(victim.output.count)")
            Self.move(victim.output, to: other.received)
            // The other side may already have completed its handshake.
            let error = other.handshake().error ?? other.readAll().end.error
            #expect(error?.code == .peerAlert, "after \(limit) bytes: \(String(describing: error))")
            if let alert = error?.alert { alerts.insert(alert) }
            #expect(victim.handshake().error != nil)
            #expect(victim.write("x").error != nil)
        }
        // In plaintext, the alert defined in RFC 8446. Encrypted, the one that OpenSSL sends for an abandoned
        // handshake.
        let isAlwaysPlain = (version, side) == (.tls12, .server) || (version, side) == (.tls13, .client)
        #expect(alerts == (isAlwaysPlain ? [.userCanceled] : [.userCanceled, .decodeError]))
    }

    @Test(arguments: versions)
    func aServerThatHasHeardNothingSaysSoToo(version: TLSProtocolVersion) throws {
        let server = try Fixture(version).engine(.server)
        _ = server.handshake()
        server.abandonHandshake()
        let alerts = Array(server.output.readableBytes)
        #expect(alerts.count == 14)
        #expect(alerts.prefix(1) == [21])
        #expect(alerts[3..<7] == [0, 2, 1, 90])
        #expect(alerts[10..<14] == [0, 2, 1, 0])
    }

    @Test(arguments: versions)
    func anAbandonedVerdictIsANo(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.trustEvaluation = .delegate
        let pair = try fixture.pair()
        pair.shakeHands()
        try #require(pair.client.isAwaitingTrust)
        pair.client.abandonHandshake()
        pair.shakeHands()
        #expect(pair.clientError?.code == .trustTimeout)
        #expect(pair.serverError?.alert == .badCertificate)
    }

    @Test(arguments: versions)
    func whatIsEstablishedCannotBeAbandoned(version: TLSProtocolVersion) throws {
        let pair = try Fixture(version).pair()
        pair.shakeHands()
        pair.server.abandonHandshake()
        #expect(pair.server.output.isEmpty)
        #expect(pair.server.write("x").accepted == 1)
    }
}

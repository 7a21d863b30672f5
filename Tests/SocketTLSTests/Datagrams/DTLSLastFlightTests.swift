import AsyncSocketsTesting
import SocketTestSupport
import Testing

@testable import SocketTLS

/// The last flight of a handshake is lost after its sender has completed. The other side retransmits its own
/// last flight, and must receive the lost one in response (RFC 6347, section 4.2.4).
struct DTLSLastFlightTests {
    enum Proof: CaseIterable, Sendable {
        case certificate, clientCertificate, key
        /// The client has the last flight.
        case resumption

        func fixture() throws -> Fixture {
            var fixture = try Fixture.forDatagrams()
            switch self {
            case .certificate: break
            case .clientCertificate:
                try fixture.askForClientCertificate()
                try fixture.showClientCertificate()
            case .key:
                let keys = try PreSharedKeyFixture(.dtls12)
                (fixture.client, fixture.server) = (keys.client, keys.server)
            case .resumption:
                fixture.server.sessionTickets = .issued(1)
                let first = try DatagramPair(fixture)
                first.shakeHands()
                fixture.client.resumption = .session(try #require(first.client.engine.session?.resumable))
            }
            return fixture
        }
    }

    /// How the other side retransmits its messages.
    enum Packing: CaseIterable, Sendable { case oneMessageEach, oneDatagram }

    /// Performs the handshake until the side with the last flight is complete, and drops that flight.
    private func pairWithoutLastFlight(_ proof: Proof) throws -> (last: DatagramPair.End, other: DatagramPair.End) {
        let pair = try DatagramPair(try proof.fixture())
        let (last, other) = proof == .resumption ? (pair.client, pair.server) : (pair.server, pair.client)
        pair.client.shakeHands()
        for _ in 0..<8 where !last.isComplete {
            pair.carry()
            other.shakeHands()
            pair.carry()
            last.shakeHands()
        }
        try #require(last.isComplete && !other.isComplete)
        #expect(last.takeOutput().contains { $0.first == 20 }, "no ChangeCipherSpec was lost")
        return (last, other)
    }

    @Test(arguments: Proof.allCases, Packing.allCases)
    func aLostLastFlightIsSentAgain(_ proof: Proof, _ packing: Packing) throws {
        let (last, other) = try pairWithoutLastFlight(proof)
        last.readAll()
        last.engine.releaseBuffers()
        // Several times in a row.
        for _ in 0..<3 {
            let flight = try other.flightAfterTimeout(packing)
            for datagram in flight { last.receive(datagram) }
            last.readAll()
            #expect(last.takeOutput().contains { $0.first == 20 }, "ChangeCipherSpec was not sent again")
            last.engine.releaseBuffers()
        }
        try complete(last, other, packing)
    }

    @Test(arguments: Proof.allCases, Packing.allCases)
    func aLostLastFlightIsSentAgainBehindData(_ proof: Proof, _ packing: Packing) throws {
        let (last, other) = try pairWithoutLastFlight(proof)
        for number in 0..<3 {
            guard case .accepted(1) = last.write([UInt8(number)]) else {
                Issue.record("the message was not encrypted")
                return
            }
            // The first arrives too early, and the others are lost.
            for datagram in last.takeOutput() where number == 0 { other.receive(datagram) }
        }
        other.shakeHands()
        #expect(!other.isComplete)
        try complete(last, other, packing)
    }

    private func complete(_ last: DatagramPair.End, _ other: DatagramPair.End, _ packing: Packing) throws {
        for datagram in try other.flightAfterTimeout(packing) { last.receive(datagram) }
        last.readAll()
        for datagram in last.takeOutput() { other.receive(datagram) }
        other.shakeHands()
        #expect(other.isComplete)
        other.readAll()
        let known = other.messages.count
        for (from, to, message) in [(last, other, [UInt8](repeating: 7, count: 70)), (other, last, [8])] {
            guard case .accepted = from.write(message) else {
                Issue.record("the message was not encrypted")
                return
            }
            for datagram in from.takeOutput() { to.receive(datagram) }
            to.readAll()
        }
        #expect(other.messages.dropFirst(known) == [[UInt8](repeating: 7, count: 70)] && last.messages == [[8]])
        #expect(last.end == nil && other.end == nil)
    }

    /// Plaintext with a forged source address has no effect, whatever follows it.
    @Test func plaintextBesideDataChangesNothing() throws {
        let pair = try DatagramPair(try Proof.certificate.fixture())
        pair.shakeHands()
        try #require(pair.client.isComplete && pair.server.isComplete)
        let dropped = pair.server.engine.droppedRecordCount
        guard case .accepted = pair.client.write([1]), let record = pair.client.takeOutput().first else {
            Issue.record("the message was not encrypted")
            return
        }
        let alert: [UInt8] = [21, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 99, 0, 2, 2, 40]
        pair.server.receive(alert + record + alert)
        pair.server.readAll()
        #expect(pair.server.messages == [[1]] && pair.server.end == nil)
        #expect(pair.server.engine.droppedRecordCount == dropped + 2)
    }
}

extension DatagramPair.End {
    /// Lets the timer expire once, and returns the retransmitted flight.
    fileprivate func flightAfterTimeout(_ packing: DTLSLastFlightTests.Packing) throws -> [[UInt8]] {
        let datagrams = try flightAfterTimeout()
        return packing == .oneDatagram ? [Array(datagrams.joined())] : datagrams
    }
}

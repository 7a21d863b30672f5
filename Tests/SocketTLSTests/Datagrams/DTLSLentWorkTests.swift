import AsyncSocketsTesting
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketTLS

/// Events on a connection while a worker is using its engine.
@Suite(.timeLimit(.patient)) struct DTLSLentWorkTests {
    /// Returns a client that has handed off the verification of a long chain, and the following datagrams
    /// from the server.
    private func lending() throws -> (
        client: DatagramPair.End, work: HandshakeWork, rest: [[UInt8]], server: DatagramPair.End
    ) {
        let (root, leaf) = try HandshakeWorkTests.longChain(HandmadeCertificate.server())
        var fixture = try Fixture(.tls12, leaf: leaf, roots: [root])
        fixture.useOnly(.dtls12)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        // Nothing in these tests depends on a timer.
        let client = DatagramPair.End(try fixture.datagramEngine(.client, defersWork: true), firstTimeout: 60)
        let server = DatagramPair.End(try fixture.datagramEngine(.server, size: 500), firstTimeout: 60)
        client.shakeHands()
        for datagram in client.takeOutput() { server.receive(datagram) }
        server.shakeHands()
        var rest = server.takeOutput()
        while !rest.isEmpty {
            client.receive(rest.removeFirst())
            client.shakeHands()
            guard case .awaitingWork(let work) = client.answer else { continue }
            try #require(!rest.isEmpty)
            return (client, work, rest, server)
        }
        throw TestFailure(what: "nothing was lent")
    }

    private func finish(_ client: DatagramPair.End, _ work: HandshakeWork) {
        work.perform()
        client.engine.takeBackWork()
        client.shakeHands()
    }

    private func complete(_ client: DatagramPair.End, _ server: DatagramPair.End) {
        for datagram in client.takeOutput() { server.receive(datagram) }
        server.shakeHands()
        for datagram in server.takeOutput() { client.receive(datagram) }
        client.shakeHands()
        #expect(client.isComplete && server.isComplete)
    }

    /// The rest of the server's flight arrives during the work, and is not lost.
    @Test func datagramsThatArriveDuringTheWorkCountAfterIt() throws {
        let (client, work, rest, server) = try lending()
        let accepted = client.engine.acceptedRecordCount
        for datagram in rest { client.receive(datagram) }
        guard case .incomplete = client.engine.handshake() else {
            Issue.record("the handshake continued without its engine")
            return
        }
        #expect(client.engine.acceptedRecordCount == accepted && client.engine.secondsToTimeout == nil)
        finish(client, work)
        #expect(client.engine.acceptedRecordCount > accepted && client.engine.hasOutput)
        complete(client, server)
        #expect(client.engine.droppedRecordCount == 0)
    }

    /// Junk that arrives during the work is dropped after it.
    @Test func junkThatArrivesDuringTheWorkChangesNothing() throws {
        let (client, work, rest, server) = try lending()
        for datagram in rest {
            client.receive([1, 2, 3])
            client.receive(datagram)
        }
        finish(client, work)
        complete(client, server)
        #expect(client.engine.droppedRecordCount == rest.count)
    }

    @Test func aPathThatGetsSmallerDuringTheWorkCountsAfterIt() throws {
        let (client, work, rest, server) = try lending()
        for datagram in rest { client.receive(datagram) }
        client.engine.setPathSize(300)
        finish(client, work)
        let flight = client.takeOutput()
        #expect(flight.count > 1 && flight.allSatisfy { $0.count <= 300 })
        for datagram in flight { server.receive(datagram) }
        complete(client, server)
        #expect(client.engine.maximumMessageSize == 300 - 37)
    }

    @Test func aConnectionThatIsClosedDuringTheWorkSendsNothing() throws {
        let (client, work, rest, _) = try lending()
        for datagram in rest { client.receive(datagram) }
        client.engine.shutdown()
        client.engine.abandonHandshake()
        #expect(!client.engine.hasOutput && client.engine.handleTimeout() == nil)
        work.perform()
        client.engine.takeBackWork()
        client.engine.abandonHandshake()
        #expect(client.engine.handshake().error?.code == .closedDuringHandshake)
    }

    /// No worker is available. A client's alerts would have to be encrypted at this point.
    @Test func aClientWhoseWorkIsRefusedFails() throws {
        let (client, _, rest, _) = try lending()
        for datagram in rest { client.receive(datagram) }
        client.engine.refuseWork()
        client.shakeHands()
        #expect(client.error?.code == .closedDuringHandshake && !client.engine.hasOutput)
    }

    @Test func aClientLearnsThatTheServersWorkWasRefused() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa3072).identity()
        let client = DatagramPair.End(try fixture.datagramEngine(.client), firstTimeout: 60)
        let server = DatagramPair.End(try fixture.datagramEngine(.server, defersWork: true), firstTimeout: 60)
        client.shakeHands()
        for datagram in client.takeOutput() { server.receive(datagram) }
        server.shakeHands()
        guard case .awaitingWork = server.answer else {
            Issue.record("the signature was not lent")
            return
        }
        server.engine.refuseWork()
        server.shakeHands()
        #expect(server.error?.code == .closedDuringHandshake)
        for datagram in server.takeOutput() { client.receive(datagram) }
        client.shakeHands()
        #expect(client.error?.alert == .internalError)
    }
}

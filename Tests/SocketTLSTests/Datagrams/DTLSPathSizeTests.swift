import AsyncSocketsTesting
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketTLS

/// The size of datagrams during a handshake, and of messages after it.
@Suite(.timeLimit(.patient)) struct DTLSPathSizeTests {
    /// A fixture whose server has a certificate of more than 4000 bytes.
    private static func fixture() throws -> Fixture {
        var fixture = try Fixture.forDatagrams()
        let names = [Fixture.host] + (0..<120).map { "name-\($0).of-a-host-with-many-names.example" }
        fixture.server.identity = try fixture.authority.issue(.server(names: names)).identity()
        return fixture
    }

    /// Returns a server that has received a ClientHello.
    private static func server(size: Int = 3000, isSizeGiven: Bool = false) throws -> (server: DatagramPair.End, hello: [UInt8]) {
        let fixture = try fixture()
        let server = DatagramPair.End(try fixture.datagramEngine(.server, size: size, isSizeGiven: isSizeGiven))
        let client = DatagramPair.End(try fixture.datagramEngine(.client, size: size))
        client.shakeHands()
        let hello = try #require(client.takeOutput().first)
        server.receive(hello)
        server.shakeHands()
        return (server, hello)
    }

    private static func largest(_ flight: [[UInt8]]) -> Int { flight.map(\.count).max() ?? 0 }

    private static func established(isSizeGiven: Bool = false) throws -> DatagramPair {
        let pair = try DatagramPair(Fixture.forDatagrams(), isSizeGiven: isSizeGiven)
        pair.shakeHands()
        try #require(pair.client.isComplete && pair.server.isComplete)
        return pair
    }

    // MARK: - Lost replies

    /// The path drops large datagrams silently: 1232 bytes after two timeouts, 548 after two more.
    @Test func datagramsBecomeSmallerTwiceWhenNoAnswerArrives() throws {
        let (server, _) = try Self.server()
        #expect(1233...3000 ~= Self.largest(server.takeOutput()))
        let sizes = try (0..<6).map { _ in Self.largest(try server.flightAfterTimeout()) }
        #expect(1233...3000 ~= sizes[0], "one timeout may have any cause")
        #expect(sizes[1...2].allSatisfy { 549...1232 ~= $0 }, "\(sizes)")
        #expect(sizes[3...5].allSatisfy { 257...548 ~= $0 }, "\(sizes)")
    }

    @Test(arguments: [(1200, 548), (548, 548), (300, 300)])
    func aSmallPathHasFewerSizesToTry(_ size: Int, _ smallest: Int) throws {
        let (server, _) = try Self.server(size: size)
        #expect(size - 100...size ~= Self.largest(server.takeOutput()))
        let sizes = try (0..<4).map { _ in Self.largest(try server.flightAfterTimeout()) }
        #expect(size - 100...size ~= sizes[0])
        #expect(sizes[1...].allSatisfy { smallest - 100...smallest ~= $0 }, "\(sizes)")
    }

    @Test func aGivenSizeStays() throws {
        let (server, _) = try Self.server(isSizeGiven: true)
        let sizes = try (0..<5).map { _ in Self.largest(try server.flightAfterTimeout()) }
        #expect(sizes.allSatisfy { 1233...3000 ~= $0 }, "\(sizes)")
    }

    /// The path works, so another timeout is not a sign of a small MTU.
    @Test func aDatagramOfThePeerResetsTheCountOfTimeouts() throws {
        let (server, hello) = try Self.server()
        _ = server.takeOutput()
        #expect(1233...3000 ~= Self.largest(try server.flightAfterTimeout()))
        server.receive(hello)
        server.shakeHands()
        _ = server.takeOutput()
        #expect(1233...3000 ~= Self.largest(try server.flightAfterTimeout()))
        #expect(549...1232 ~= Self.largest(try server.flightAfterTimeout()))
    }

    /// Lost replies do not prove that the MTU is small, so a program can later send whatever the kernel
    /// allows.
    @Test func messagesKeepTheirSizeWhenAnswersDidNotCome() throws {
        let pair = try DatagramPair(Fixture.forDatagrams(), size: 3000)
        pair.client.shakeHands()
        for _ in 0..<5 { _ = try pair.client.flightAfterTimeout() }
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        for end in [pair.client, pair.server] { #expect(end.engine.maximumMessageSize == 3000 - 37) }
        pair.send(Array(repeating: 3, count: 3000 - 37), from: .client)
        #expect(pair.server.messages.last?.count == 3000 - 37)
    }

    /// The timeout doubles (RFC 6347, section 4.2.4.1). A busy machine may measure some of the times too
    /// late.
    @Test func messagesAreSentAgainMoreAndMoreSlowly() throws {
        let first = 0.05
        let client = DatagramPair.End(try Fixture.forDatagrams().datagramEngine(.client), firstTimeout: first)
        client.shakeHands()
        _ = client.takeOutput()
        var times: [Double] = []
        for _ in 0..<4 {
            _ = try client.flightAfterTimeout()
            times.append(try #require(client.engine.secondsToTimeout))
        }
        #expect(times.contains { $0 > 4 * first }, "\(times)")
    }

    // MARK: - Path changes

    @Test(arguments: [false, true]) func aSmallerPathCountsForTheNextFlight(_ isSizeGiven: Bool) throws {
        let (server, _) = try Self.server(isSizeGiven: isSizeGiven)
        #expect(1233...3000 ~= Self.largest(server.takeOutput()))
        server.engine.setPathSize(700)
        let size = Self.largest(try server.flightAfterTimeout())
        #expect(isSizeGiven ? 1233...3000 ~= size : 549...700 ~= size)
    }

    /// The kernel detects a smaller path MTU when a router reports it, and a larger one after some time.
    @Test func messagesFollowThePath() throws {
        let pair = try Self.established()
        for size in [700, 300, 1400, 9000] {
            pair.client.engine.setPathSize(size)
            let count = pair.client.engine.maximumMessageSize
            #expect(count == size - 37)
            pair.send([UInt8](repeating: 3, count: count), from: .client)
            #expect(pair.client.sent.last?.count == size && pair.server.messages.last?.count == count)
        }
    }

    @Test func messagesOfAGivenSizeDoNotFollowThePath() throws {
        let pair = try Self.established(isSizeGiven: true)
        for size in [700, 9000] {
            pair.client.engine.setPathSize(size)
            #expect(pair.client.engine.maximumMessageSize == 1400 - 37)
        }
    }

    /// OpenSSL requires at least this MTU, so smaller values in forged reports are ignored.
    @Test func aPathThatIsTooSmallForDTLSIsNotBelieved() throws {
        let pair = try Self.established()
        for size in [0, 1, 255, 256] {
            pair.client.engine.setPathSize(1400)
            pair.client.engine.setPathSize(size)
            #expect(pair.client.engine.maximumMessageSize == 256 - 37)
        }
        pair.send([1, 2], from: .client)
        #expect(pair.server.messages == [[1, 2]])
    }
}

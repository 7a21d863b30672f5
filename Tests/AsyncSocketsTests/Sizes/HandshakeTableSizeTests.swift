import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import Synchronization
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// The memory of the tables of a `DatagramListener` after handshakes and peers have closed.
@Suite struct HandshakeTableSizeTests {
    private static let count = 10_000
    private let tally = Tally()

    /// One of 5,000 IPv4 addresses and 5,000 IPv6 networks.
    private func address(_ number: Int) throws -> InternetAddress {
        let source = number % 10_000
        let host = source < 5_000 ? "10.0.\(source / 250).\(source % 250 + 1)" : "2001:db8:0:\(String(source, radix: 16))::1"
        return InternetAddress(try .loopback(host, port: UInt16(number % 60_000 + 1)))
    }

    // MARK: - Handshakes

    enum End: CaseIterable {
        case oldestFirst, newestFirst, eviction, mixed
    }

    @Test(arguments: End.allCases) func handshakesOneAfterAnotherLeaveNothing(_ end: End) throws {
        var table = HandshakeTable<any AnyObject & Sendable>()
        func visit(_ number: Int) throws {
            let handshake = table.begin(from: try address(number))
            // A handshake may end before the socket of its client exists.
            if number % 4 > 0 { table.setClient(tally.token(), of: handshake) }
            if end == .eviction { _ = table.endOldestOfLargestSource() } else { table.end(handshake) }
            table.setClient(tally.token(), of: handshake)
            #expect(table.end(handshake) == nil)
            table.leave(handshake)
        }
        for number in 0..<10 { try visit(number) }
        let before = Contents(of: table)
        for number in 0..<Self.count { try visit(number) }
        #expect(table.count == 0 && Contents(of: table) == before && tally.alive == 0)
    }

    /// From as many sources, and then from a few that begin many handshakes.
    @Test(arguments: End.allCases, [10_000, 7]) func handshakesAtTheSameTimeLeaveNothing(_ end: End, sources: Int) throws {
        var table = HandshakeTable<any AnyObject & Sendable>()
        var numbers: [HandshakeNumber] = []
        for number in 0..<Self.count {
            numbers.append(table.begin(from: try address(number % sources)))
            table.setClient(tally.token(), of: numbers[number])
        }
        #expect(table.count == Self.count && tally.alive == Self.count && Contents(of: table)["sources.slots"] == sources)
        switch end {
        case .oldestFirst: for number in numbers { table.end(number) }
        case .newestFirst: for number in numbers.reversed() { table.leave(number) }
        case .eviction: while table.endOldestOfLargestSource() != nil {}
        case .mixed:
            for number in numbers where number % 3 == 0 { table.end(number) }
            for _ in numbers { _ = table.endOldestOfLargestSource() }
        }
        #expect(table.count == 0 && tally.alive == 0)
        for number in numbers { table.leave(number) }
        let contents = Contents(of: table)
        #expect(contents == Contents(of: HandshakeTable<any AnyObject & Sendable>()), "\(contents)")
    }

    // MARK: - Peers

    private static let arrival = DatagramArrival(ArrivalFacts(), fullSize: 0, isTruncated: false)

    private static var source: SourceKey { get throws { SourceKey(try .loopback("127.0.0.1", port: 1)) } }

    private func makeMailbox(in space: MailboxSpace, _ count: Int = 1, of source: SourceKey? = nil) throws -> PeerMailbox? {
        let source = try source ?? Self.source
        return [UInt8](repeating: 1, count: count).withUnsafeBytes {
            PeerMailbox(in: space, space.share(of: source), with: $0, Self.arrival)
        }
    }

    private func peer(_ key: PeerKey, _ handshake: HandshakeNumber, on loop: SocketEventLoop, in space: MailboxSpace) throws
        -> ListenerPeer
    {
        ListenerPeer(
            key: key, mailbox: try #require(try makeMailbox(in: space)),
            connection: DatagramConnection(for: AsyncUDPSocket(), as: .server, on: loop), helloDigest: 1, insteadOf: nil,
            handshake: handshake)
    }

    /// Peers that leave during and after their handshake, that are replaced and evicted, and that get no
    /// space. Two peers have the same address.
    @Test func peersThatComeAndGoLeaveNothing() throws {
        let (loop, space) = (try SocketEventLoop(), MailboxSpace(mailboxLimit: 4))
        var table = PeerTable(maximumPeers: 4)
        table.maximumHandshakes = 2
        func add(_ key: PeerKey, hasHello: Bool, insteadOf earlier: ListenerPeer? = nil) throws -> ListenerPeer {
            let isAdmitted = table.admit(key, hasHello: hasHello, insteadOf: earlier)
            #expect(isAdmitted)
            let handshake = try #require(table.begin(key, hasHello: hasHello, insteadOf: earlier)?.handshake)
            let peer = try peer(key, handshake, on: loop, in: space)
            table.insert(peer)
            return peer
        }
        func remove(_ peer: ListenerPeer) { table.remove(peer.key, peer.mailbox, peer.handshake) }
        func visit(_ number: Int) throws {
            let address = try address(number)
            let (key, elsewhere) = (PeerKey(peer: address, local: nil), PeerKey(peer: address, local: address))
            let shaking = try add(key, hasHello: true)
            let other = try add(elsewhere, hasHello: true)
            #expect(table.peers(at: address).count == 2 && table.peerCount == 2 && table.handshakes.count == 2)
            if number % 2 == 0 {
                table.endHandshake(shaking.handshake)
                #expect(table.isEstablished(shaking))
            }
            let replacing = try add(key, hasHello: true, insteadOf: shaking)
            // At the limit of handshakes, one of them is removed.
            let last = try add(PeerKey(peer: try self.address(number + 1), local: nil), hasHello: true)
            #expect(table.handshakes.count == 2)
            let isAdmitted = table.admit(key, hasHello: false, insteadOf: nil)
            table.giveUp()
            #expect(isAdmitted && table.peerCount == 2 && table.all.count == 2)
            for peer in [shaking, other, replacing, last, last] { remove(peer) }
            #expect(table.peerCount == 0 && table.all.isEmpty)
        }
        for number in 0..<10 { try visit(number) }
        let before = Contents(of: table)
        for number in 0..<1_000 { try visit(number) }
        #expect(Contents(of: table) == before && table.handshakes.count == 0)
        table.isAccepting = false
        #expect(table.isUnused)
    }

    // MARK: - Mailboxes

    /// Datagrams that are taken, closed, released and refused. Then the whole space is free, to the byte.
    @Test func mailboxesThatComeAndGoLeaveTheirSpace() throws {
        let space = MailboxSpace(mailboxLimit: 4)
        space.limit.store(8_000, ordering: .relaxed)
        func put(_ count: Int, _ mailbox: PeerMailbox) -> Bool? {
            [UInt8](repeating: 1, count: count).withUnsafeBytes { mailbox.put($0, Self.arrival) }
        }
        for number in 0..<Self.count {
            let mailbox = try #require(try makeMailbox(in: space, number % 700))
            #expect(put(number % 300, mailbox) == false)
            let tooLarge = try makeMailbox(in: space, 9_000)
            #expect(put(9_000, mailbox) == nil && tooLarge == nil)
            if number % 3 == 0 { while mailbox.take() != nil {} }
            if number % 3 == 1 { mailbox.close() }
            #expect(number % 3 == 2 || number % 50 > 0 || Contents(of: mailbox)["state.datagrams"] == 0)
            if number % 6 == 1 { #expect(put(1, mailbox) == nil) }
        }
        // Mailboxes of two sources use half of the space exactly, and one source at most four fifths.
        let first = try #require(try makeMailbox(in: space, 2_000 - 256))
        #expect(try makeMailbox(in: space, 1_201 - 256) == nil)
        let second = try #require(try makeMailbox(in: space, 1_200 - 256))
        let other = try otherSource(in: space)
        #expect(try makeMailbox(in: space, 1_001 - 256, of: other) == nil)
        let third = try #require(try makeMailbox(in: space, 800 - 256, of: other))
        #expect(!first.isEmpty && !second.isEmpty && !third.isEmpty)
    }

    /// A source that does not share space with the usual one.
    private func otherSource(in space: MailboxSpace) throws -> SourceKey {
        let usual = space.share(of: try Self.source)
        let others = try (1...100).map { SourceKey(try .loopback("10.0.0.\($0)", port: 1)) }
        return try #require(others.first { space.share(of: $0) !== usual })
    }

    // MARK: - Buffers

    /// Sockets that close, that rest, and that find no place.
    @Test func buffersOfSocketsThatAreGoneAreNotCounted() throws {
        let shared = KeptBuffers(limit: 2)
        let now = Deadline.now
        let later = try #require(Deadline(after: 5, from: now))
        let latest = try #require(Deadline(after: 10, from: now))
        for number in 0..<Self.count {
            var rests = (0..<3).map { _ in BufferRest(shared) }
            let kept = rests.indices.map { rests[$0].keep(at: now) }
            #expect(kept == [true, true, false] && shared.keptCount == 2)
            if number % 2 == 0 {
                for index in rests.indices { rests[index].end() }
            } else {
                let expired = rests.indices.map { rests[$0].expire(at: later) || rests[$0].expire(at: latest) }
                #expect(expired == [true, true, false])
            }
            #expect(shared.keptCount == 0)
        }
    }
}

import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// The mailboxes of a listener's peers.
@Suite(.timeLimit(.patient)) struct PeerMailboxTests {
    private static let arrival = DatagramArrival(ArrivalFacts(), fullSize: 0, isTruncated: false)
    private static let costOfDatagram = 256

    private static func mailbox(in space: MailboxSpace, of source: SourceKey? = nil, _ bytes: [UInt8]) throws -> PeerMailbox? {
        let source = try source ?? SourceKey(.loopback("10.0.0.1", port: 1))
        return bytes.withUnsafeBytes { PeerMailbox(in: space, space.share(of: source), with: $0, arrival) }
    }

    /// Two sources that do not share space.
    private static func sources(in space: MailboxSpace) throws -> [SourceKey] {
        let sources = try (1...100).map { SourceKey(try .loopback("10.0.0.\($0)", port: 1)) }
        let first = space.share(of: sources[0])
        return [sources[0], try #require(sources.first { space.share(of: $0) !== first })]
    }

    /// Compares four mailboxes of two sources with lists, with random lengths, insertions and removals.
    @Test func mailboxesKeepOrderAndBothBounds() async throws {
        var refused = (byMailbox: 0, bySpace: 0, bySource: 0)
        for seed in UInt64(0)..<20 {
            try Self.check(seed, &refused)
            // With a sanitizer each round takes a second, and other tests need the thread.
            await Task.yield()
        }
        // Each of the three limits was reached.
        #expect(refused.byMailbox > 0 && refused.bySpace > 0 && refused.bySource > 0)
    }

    private static func check(_ seed: UInt64, _ refused: inout (byMailbox: Int, bySpace: Int, bySource: Int)) throws {
        var random = SeededGenerator(seed: seed)
        let space = MailboxSpace(mailboxLimit: 4)
        let limit = Int.random(in: 100_000...600_000, using: &random)
        space.limit.store(limit, ordering: .relaxed)
        func cost(_ datagrams: [[UInt8]]) -> Int { datagrams.reduce(0) { $0 + $1.count + costOfDatagram } }
        var models: [[[UInt8]]] = (0..<4).map { [[UInt8($0)]] }
        let sources = try sources(in: space)
        let mailboxes = try models.indices.map { try #require(try mailbox(in: space, of: sources[$0 % 2], models[$0][0])) }
        for step in 0..<4_000 {
            let index = Int.random(in: 0..<4, using: &random)
            if Int.random(in: 0..<5, using: &random) == 0 {
                let taken = mailboxes[index].take().map { Array($0.bytes) }
                #expect(taken == models[index].first)
                if taken != nil { models[index].removeFirst() }
                continue
            }
            let bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: step), count: Int.random(in: 0...30_000, using: &random))
            let isWithinOwn = models[index].isEmpty || cost(models[index] + [bytes]) <= 128 * 1024
            let isWithinShare = models[index].isEmpty && cost([bytes]) <= limit / 2 / 4
            let ofSource = cost(models[index % 2] + models[index % 2 + 2] + [bytes])
            let isWithinHalf = cost(models.flatMap(\.self) + [bytes]) <= limit / 2
            let isWithinAll = isWithinShare || isWithinHalf && ofSource <= limit / 2 - limit / 2 / 5
            #expect(cost(models.flatMap(\.self)) <= limit)
            let isPut = bytes.withUnsafeBytes { mailboxes[index].put($0, arrival) } != nil
            #expect(isPut == (isWithinOwn && isWithinAll))
            if isPut { models[index].append(bytes) }
            if !isWithinOwn { refused.byMailbox += 1 } else if !isWithinAll { refused.bySpace += 1 }
            if isWithinOwn, isWithinHalf, !isWithinAll { refused.bySource += 1 }
        }
    }

    @Test func whatAMailboxHeldIsFreeWhenItClosesOrGoes() throws {
        let space = MailboxSpace(mailboxLimit: 1)
        space.limit.store(10_000, ordering: .relaxed)
        let bytes = [UInt8](repeating: 1, count: 9_000)
        for _ in 0..<3 {
            let mailbox = try #require(try Self.mailbox(in: space, bytes))
            #expect(try Self.mailbox(in: space, bytes) == nil)
            mailbox.close()
            #expect(bytes.withUnsafeBytes { mailbox.put($0, Self.arrival) } == nil)
            // Released immediately, with its contents.
            #expect(try Self.mailbox(in: space, bytes) != nil)
        }
    }

    /// Five of ten mailboxes fill up with datagrams of any length. Each of the others still has room for one.
    @Test(.ownThreads, arguments: 0..<20) func thoseWhoFillTheirMailboxesDoNotShutTheOthersOut(_ seed: Int) throws {
        var random = SeededGenerator(seed: UInt64(seed))
        let space = MailboxSpace(mailboxLimit: 10)
        space.limit.store(100_000, ordering: .relaxed)
        let mailboxes = try (0..<10).map { try #require(try Self.mailbox(in: space, [UInt8($0)])) }
        for mailbox in mailboxes { #expect(mailbox.take() != nil) }
        for _ in 0..<2_000 {
            let mailbox = mailboxes[Int.random(in: 0..<5, using: &random)]
            if Int.random(in: 0..<10, using: &random) == 0 { _ = mailbox.take() }
            let bytes = [UInt8](repeating: 1, count: Int.random(in: 0...20_000, using: &random))
            _ = bytes.withUnsafeBytes { mailbox.put($0, Self.arrival) }
        }
        let share = [UInt8](repeating: 2, count: 100_000 / 2 / 10 - Self.costOfDatagram)
        for mailbox in mailboxes[5...] { #expect(share.withUnsafeBytes { mailbox.put($0, Self.arrival) } != nil) }
    }

    /// A lower limit does not close mailboxes, but increases the share of each.
    @Test func theSumIsBoundedAlsoWithMoreMailboxesThanTheLimit() throws {
        let space = MailboxSpace(mailboxLimit: 40)
        space.limit.store(100_000, ordering: .relaxed)
        let mailboxes = try (0..<40).map { try #require(try Self.mailbox(in: space, [UInt8($0)])) }
        for mailbox in mailboxes { #expect(mailbox.take() != nil) }
        space.mailboxLimit.store(1, ordering: .relaxed)
        let bytes = [UInt8](repeating: 1, count: 9_000)
        let admitted = mailboxes.filter { mailbox in bytes.withUnsafeBytes { mailbox.put($0, Self.arrival) } != nil }
        #expect(admitted.count == 100_000 / (9_000 + Self.costOfDatagram))
    }

    @Test func aDatagramAloneIsNeverTooMuch() throws {
        let space = MailboxSpace(mailboxLimit: 1)
        space.limit.store(0, ordering: .relaxed)
        let first = try #require(try Self.mailbox(in: space, [1]))
        #expect(try Self.mailbox(in: space, [2]) == nil)
        #expect(first.take() != nil)
        #expect(try Self.mailbox(in: space, [2]) != nil)
    }

    /// Peers of one source send datagrams that are not read. What they fill is bounded, dropped datagrams are
    /// counted, and other sources still have space.
    @Test func strangersTogetherFillNoMoreThanTheLimit() async throws {
        let listener = try DatagramListener(address: .loopback())
        listener.maximumTotalPendingReceiveBytes = 100_000
        #expect(listener.maximumTotalPendingReceiveBytes == 100_000)
        let serving = Task { try await listener.run { _ in await Self.waitForCancellation() } }
        var strangers: [AsyncUDPSocket] = []
        while listener.snapshot.refused.byPendingBytes == 0, strangers.count < 100 {
            let stranger = AsyncUDPSocket()
            strangers.append(stranger)
            try await stranger.connect(to: "127.0.0.1", port: listener.localPort)
            let before = listener.snapshot.openCount + listener.snapshot.refused.byPendingBytes
            try await stranger.send(Data(count: 9_000))
            try await eventually("it has arrived") {
                listener.snapshot.openCount + listener.snapshot.refused.byPendingBytes > before
            }
        }
        #expect(listener.snapshot.openCount == 40_000 / (9_000 + Self.costOfDatagram))
        #expect(listener.snapshot.refused.byPendingBytes == 1 && listener.snapshot.pendingByteCount == 4 * 9_256)
        let space = listener.hub.mailboxes
        let usual = space.share(of: SourceKey(try .loopback("127.0.0.1", port: 1)))
        let host = try #require(
            try (2...100).map { "127.0.0.\($0)" }.first { space.share(of: SourceKey(try .loopback($0, port: 1))) !== usual })
        let other = try AsyncUDPSocket.bound(host)
        try await other.send(Data(count: 9_000), to: "127.0.0.1", port: listener.localPort)
        try await eventually("it is a peer") { listener.snapshot.openCount == 50_000 / (9_000 + Self.costOfDatagram) }
        await listener.close(timeout: .zero)
        try await serving.value
        // The refused datagram does not keep the descriptors open.
        try await eventually("its descriptors are released") { Contents(of: listener.hub)["descriptors.own"] == 0 }
    }

    /// Anyone can forge datagrams from the address of a DTLS peer. Those that arrive before its handshake
    /// do not restart its idle timeout.
    @Test(arguments: [false, true]) func datagramsBeforeAHandshakeAreNotActivity(hasHello: Bool) throws {
        let mailbox = try #require(try Self.mailbox(in: MailboxSpace(mailboxLimit: 1), [1]))
        let address = try InternetAddress.discard
        let channel = PeerChannel(
            try DatagramDescriptor(opening: .ipv4), PeerKey(peer: address, local: nil), from: nil, mailbox, hasHello: hasHello,
            denial: Locked(nil), proved: {}, left: {})
        defer { channel.descriptor.socket.close() }
        for _ in 0..<3 { _ = [2].withUnsafeBytes { mailbox.put($0, Self.arrival) } }
        #expect(channel.arrivalCount == (hasHello ? 0 : 4))
    }

    private static func waitForCancellation() async {
        let (isCancelled, end) = AsyncStream<Void>.makeStream()
        for await _ in isCancelled {}
        end.finish()
    }

    /// Sends every 20 ms. On a busy machine, it may pause for longer than the idle timeout.
    private struct Pulse {
        private let clock = ContinuousClock()
        private(set) var longestPause = Duration.zero

        mutating func send(by client: AsyncUDPSocket, for time: Duration, while condition: () -> Bool = { true }) async {
            let start = clock.now
            var last = start
            while clock.now - start < time, condition() {
                try? await client.send(Data([1]))
                (longestPause, last) = (max(longestPause, clock.now - last), clock.now)
                _ = try? await client.receive(timeout: .milliseconds(20))
            }
        }
    }

    private static let idleTimeout = Duration.seconds(6)
    private static let attempts = 10

    /// The program reads one datagram, and others keep arriving for longer than the idle timeout.
    @Test func aPeerIsNotSilentWhileItsTaskIsSlow() async throws {
        let listener = try DatagramListener(address: .loopback(), idleTimeout: Self.idleTimeout)
        let peers = Locked(0)
        let serving = Task {
            try await listener.run { socket in
                peers.withLock { $0 += 1 }
                _ = try await socket.receive()
                await Self.waitForCancellation()
            }
        }
        var isChecked = false
        for _ in 0..<Self.attempts where !isChecked {
            let client = AsyncUDPSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            peers.withLock { $0 = 0 }
            var pulse = Pulse()
            await pulse.send(by: client, for: Self.idleTimeout * 2.5)
            guard pulse.longestPause < Self.idleTimeout / 2 else { continue }
            #expect(peers.withLock { $0 } == 1)
            isChecked = true
        }
        #expect(isChecked)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// Sent continuously from the peer's address.
    @Test func datagramsThatAreNotAuthenticDoNotKeepAPeer() async throws {
        let listener = try DatagramListener(
            address: .loopback(), dtls: TestCertificates.server(), idleTimeout: Self.idleTimeout)
        let peers = Locked<[AsyncUDPSocket]>([])
        let serving = Task {
            try await listener.run { socket in
                peers.withLock { $0.append(socket) }
                await Self.waitForCancellation()
            }
        }
        var isChecked = false
        for _ in 0..<Self.attempts where !isChecked {
            let relay = try DatagramRelay(to: listener.localPort)
            defer { relay.close() }
            let client = AsyncUDPSocket()
            try await client.connect(to: "127.0.0.1", port: relay.port)
            try await client.startDTLS(settings: TestCertificates.client())
            relay.setHarm(DatagramRelay.Harm(corruption: 100))
            var pulse = Pulse()
            await pulse.send(by: client, for: .seconds(60)) { listener.snapshot.openCount > 0 }
            // Some arrived, so the peer was not merely silent.
            let droppedCount = peers.withLock { $0.last?.dropped.invalid ?? 0 }
            guard pulse.longestPause < Self.idleTimeout / 2, droppedCount > 1 else { continue }
            #expect(listener.snapshot.openCount == 0)
            isChecked = true
        }
        #expect(isChecked)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// A task may take a single datagram long after its arrival.
    @Test func aLateFirstDatagramProvesNothing() throws {
        let mailbox = try #require(try Self.mailbox(in: MailboxSpace(mailboxLimit: 1), [1]))
        let (proved, address) = (Locked(0), try InternetAddress.discard)
        let channel = PeerChannel(
            try DatagramDescriptor(opening: .ipv4), PeerKey(peer: address, local: nil), from: nil, mailbox, hasHello: false,
            provenAfter: 0, denial: Locked(nil), proved: { proved.withLock { $0 += 1 } }, left: {})
        defer { channel.descriptor.socket.close() }
        #expect(channel.next() != nil && proved.withLock { $0 } == 0)
        _ = [2].withUnsafeBytes { mailbox.put($0, Self.arrival) }
        #expect(channel.next() != nil && proved.withLock { $0 } == 1)
    }

    /// The second datagram of a burst proves nothing, because it was sent before the reply to the first.
    @Test func aBurstProvesNothing() throws {
        let mailbox = try #require(try Self.mailbox(in: MailboxSpace(mailboxLimit: 1), [1]))
        let (proved, address) = (Locked(0), try InternetAddress.discard)
        let channel = PeerChannel(
            try DatagramDescriptor(opening: .ipv4), PeerKey(peer: address, local: nil), from: nil, mailbox, hasHello: false,
            provenAfter: Patience.seconds * 2, denial: Locked(nil), proved: { proved.withLock { $0 += 1 } }, left: {})
        defer { channel.descriptor.socket.close() }
        _ = [2].withUnsafeBytes { mailbox.put($0, Self.arrival) }
        #expect(channel.next() != nil)
        _ = [1].withUnsafeBytes { channel.send(OutgoingDatagram($0, to: nil)) }
        #expect(channel.next() != nil && proved.withLock { $0 } == 0)
        _ = [3].withUnsafeBytes { mailbox.put($0, Self.arrival) }
        #expect(channel.next() != nil && proved.withLock { $0 } == 1)
    }
}

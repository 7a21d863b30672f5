import AsyncSocketsTesting
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Batches with and without kernel offloading (UDP GSO and GRO).
@Suite(.timeLimit(.patient), .ownThreads) struct DatagramSegmentTests {
    /// The sides with offloading.
    struct Setting: CustomTestStringConvertible {
        let segments: Bool
        let coalesces: Bool
        var testDescription: String { "GSO \(segments), GRO \(coalesces)" }
    }

    static let settings = [true, false].flatMap { segments in
        [true, false].map { Setting(segments: segments, coalesces: $0) }
    }

    /// Reads the kernel's option without the library.
    private func hasSegments(_ descriptor: DatagramDescriptor) -> Bool {
        var size: Int32 = 0
        var length = socklen_t(4)
        return getsockopt(descriptor.socket.rawValue, Int32(IPPROTO_UDP), 103, &size, &length) == 0
    }

    @Test(arguments: settings) func randomBatchesArriveAsTheyWereSent(_ setting: Setting) throws {
        for (host, families) in [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6)] {
            var options = SocketOptionSet()
            try options.set(.receiveBufferSize, to: 1_000_000)
            let receivers = try (0..<3).map { _ in
                try DatagramParty(host, families: families, wanted: setting.coalesces ? .coalescing : [], options: options)
            }
            let own = try DatagramParty(host, families: families, segments: setting.segments)
            #expect((own.sender.largestSegment > 0) == (setting.segments && hasSegments(own.descriptor)))
            // The first half is the same in each run. `SEGMENT_SEED` replays the other half.
            var (fixed, random) = (SeededGenerator(seed: 1), SeededGenerator(seed: Seeds.first("SEGMENT_SEED")))
            for round in 0..<30 { try exchange(own, receivers, round, &fixed) }
            for round in 30..<60 { try exchange(own, receivers, round, &random) }
        }
    }

    /// The UDP and IPv4 headers count, the IPv6 header does not.
    @Test func theLargestDatagramDependsOnTheVersionOfIP() throws {
        let sizes = [("127.0.0.1", 65_507), ("::1", 65_527), ("::ffff:127.0.0.1", 65_507)]
        for (host, size) in sizes {
            let address = InternetAddress(try SocketEndpoint.loopback(host, port: 9))
            #expect(OutgoingDatagram.largestSize(to: address) == size)
            #expect(OutgoingDatagram.sizeError(of: size, to: address) == nil)
            #expect(OutgoingDatagram.sizeError(of: size + 1, to: address)?.errno == EMSGSIZE)
        }
        #expect(OutgoingDatagram.largestSize(to: nil) == 65_507)
    }

    /// If there are more datagrams than fit in one send, the sender still uses runs of that size.
    @Test func aRunThatWouldBeTooLargeIsDivided() throws {
        var options = SocketOptionSet()
        try options.set(.receiveBufferSize, to: 1_000_000)
        let (own, receiver) = (try DatagramParty(), try DatagramParty(options: options))
        let before = own.sender.largestSegment
        let payloads = (0..<60).map { [UInt8](repeating: UInt8($0), count: 1400) }
        #expect(own.send(payloads, to: try receiver.address).isComplete(60))
        #expect(own.sender.largestSegment == before)
        #expect(try receiver.take(60).map(\.bytes) == payloads)
    }

    /// Sends a batch of runs and single datagrams. Each receiver gets its own in order.
    private func exchange(
        _ own: DatagramParty, _ receivers: [DatagramParty], _ round: Int, _ random: inout SeededGenerator
    ) throws {
        var batch: [Payload] = []
        var model = [[[UInt8]]](repeating: [], count: receivers.count)
        var bytes = 0
        while batch.count < 100, bytes < 30_000 {
            let index = Int.random(in: 0..<receivers.count, using: &random)
            let size =
                Bool.random(using: &random) ? Int.random(in: 0...40, using: &random) : Int.random(in: 0...1400, using: &random)
            for _ in 0..<Int.random(in: 1...40, using: &random) {
                let shorter = Int.random(in: 0..<12, using: &random) == 0 ? Int.random(in: 0...size, using: &random) : size
                let payload = (0..<shorter).map { UInt8(truncatingIfNeeded: $0 &+ batch.count &+ round) }
                batch.append(Payload(payload, to: try receivers[index].address))
                model[index].append(payload)
                bytes += payload.count
            }
        }
        #expect(own.send(batch).isComplete(batch.count))
        for (receiver, expected) in zip(receivers, model) {
            let taken = try receiver.take(expected.count)
            #expect(taken.map(\.bytes) == expected, "SEGMENT_SEED=\(Seeds.first("SEGMENT_SEED")), round \(round)")
            #expect(try taken.allSatisfy { try $0.sender == own.address && !$0.arrival.isTruncated })
            #expect(try taken.allSatisfy { try $0.arrival.localAddress == receiver.address })
            #expect(!receiver.hasInput)
        }
    }

    @Test func aRunGoesInOnePieceIfTheKernelCan() throws {
        let (own, peer) = (try DatagramParty(wanted: .coalescing), try DatagramParty())
        guard own.reception.contains(.coalescing), hasSegments(peer.descriptor) else { return }
        let payloads = (0..<40).map { [UInt8](repeating: UInt8($0), count: 500) } + [[9, 9]]
        #expect(peer.send(payloads, to: try own.address).isComplete(41))
        // All datagrams are in one message.
        guard case .received = own.receiver.receive(from: own.descriptor, atMost: 1) else {
            Issue.record("nothing came")
            return
        }
        var taken: [Taken] = []
        while let next = own.receiver.next() { taken.append(Taken(next)) }
        #expect(taken.map(\.bytes) == payloads)
        #expect(taken.map(\.arrival.fullSize) == payloads.map(\.count))
    }

    @Test func datagramsOfOtherSourcesAndPeersAreNotMixed() throws {
        let (first, second, own) = (try DatagramParty(), try DatagramParty(), try DatagramParty("0.0.0.0"))
        let sources = ["127.0.0.3", "127.0.0.4"].map { DatagramSource(address: (try? .loopback($0)).map { InternetAddress($0) }) }
        var expected: [[(byte: UInt8, host: String?)]] = [[], []]
        var batch: [Payload] = []
        for step in 0..<40 {
            let (target, source) = (step % 3 == 0 ? 0 : 1, sources[step % 2])
            expected[target].append((UInt8(step), source.address?.socketAddress.host))
            batch.append(Payload([UInt8(step), 7, 7], to: try [first, second][target].address, from: source))
        }
        #expect(own.send(batch).isComplete(40))
        for (party, expected) in zip([first, second], expected) {
            let taken = try party.take(expected.count)
            #expect(taken.map { $0.bytes[0] } == expected.map { $0.byte })
            #expect(taken.map { $0.sender.host } == expected.map { $0.host })
        }
    }
}

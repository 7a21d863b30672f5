import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketCore

/// Control messages that accompany a datagram.
@Suite(.timeLimit(.patient)) struct ControlMessageTests {
    // MARK: - Encoding

    private struct Copy: Equatable {
        let level, type: Int32
        let bytes: [UInt8]
    }

    private static func read(_ bytes: [UInt8]) -> [Copy] {
        bytes.withUnsafeBytes { bytes in
            var (reader, copies) = (ControlMessageReader(bytes), [Copy]())
            while let message = reader.next() {
                copies.append(Copy(level: message.level, type: message.type, bytes: Array(message.data)))
            }
            return copies
        }
    }

    /// - Parameter roomSize: The buffer size for all messages.
    private static func written(_ copies: [Copy], roomSize: Int = 1024) -> (bytes: [UInt8], count: Int) {
        var (room, fitting) = ([UInt8](repeating: 0xAA, count: roomSize), 0)
        let size = room.withUnsafeMutableBytes { room in
            var writer = ControlMessageWriter(room)
            for copy in copies {
                guard let data = writer.append(copy.level, copy.type, size: copy.bytes.count) else { continue }
                data.copyBytes(from: copy.bytes)
                fitting += 1
            }
            return writer.count
        }
        return (Array(room.prefix(size)), fitting)
    }

    private static let copies = (0...17).map { size in
        Copy(level: Int32(size), type: Int32(100 - size), bytes: (0..<size).map { UInt8($0 + 1) })
    }

    /// The macros of cmsg(3): each header is aligned to eight bytes.
    @Test func messagesOfAnyLengthAreReadAsTheyWereWritten() {
        let (bytes, count) = Self.written(Self.copies)
        #expect(count == 18 && bytes.count == Self.copies.map { 16 + ($0.bytes.count + 7) / 8 * 8 }.reduce(0, +))
        #expect(Self.read(bytes) == Self.copies)
        // The kernel may leave out the padding of the last one.
        #expect(Self.read(Array(bytes.dropLast(7))) == Self.copies)
    }

    @Test func aMessageWithoutRoomIsNotWritten() {
        let two = [Copy(level: 1, type: 2, bytes: [1, 2, 3]), Copy(level: 3, type: 4, bytes: [4])]
        for (room, count) in [(0, 0), (23, 0), (24, 1), (47, 1), (48, 2)] {
            let (bytes, fitting) = Self.written(two, roomSize: room)
            #expect(fitting == count && Self.read(bytes) == Array(two.prefix(count)), "\(room) bytes")
        }
    }

    /// Invalid lengths, which the kernel never writes. Nothing behind the end is read.
    @Test(arguments: [0, 1, 15, 21, 24, 1000, Int.max, -1]) func aLengthThatIsWrongEndsTheMessages(_ length: Int) {
        let first = Copy(level: 1, type: 2, bytes: [1, 2, 3, 4])
        var bytes = Self.written([first, first]).bytes
        bytes.replaceSubrange(24..<32, with: withUnsafeBytes(of: length) { Array($0) })
        bytes.removeLast(4)
        #expect(Self.read(bytes) == [first])
    }

    @Test func aMessageThatIsTooShortHasNoFacts() {
        for size in 0..<20 {
            let copies = [
                Copy(level: Int32(IPPROTO_IP), type: IP_PKTINFO, bytes: [UInt8](repeating: 1, count: min(size, 11))),
                Copy(level: Int32(IPPROTO_IPV6), type: IPV6_PKTINFO, bytes: [UInt8](repeating: 1, count: size)),
                Copy(level: SOL_SOCKET, type: SO_TIMESTAMPNS, bytes: [UInt8](repeating: 1, count: min(size, 15))),
            ]
            let facts = Self.written(copies).bytes.withUnsafeBytes { ArrivalFacts($0, port: 9) }
            #expect(facts.localAddress == nil && facts.interfaceIndex == 0 && facts.replySource == nil, "\(size) bytes")
            #expect(facts.timeSince1970 == nil && facts.droppedCount == nil && facts.segmentSize == nil)
        }
    }

    // MARK: - Received in batches

    /// Each datagram in one recvmmsg(2) has its own destination address and packet mark.
    @Test(arguments: [DatagramReception(), .coalescing, .timestamps])
    func eachDatagramOfABatchHasItsOwnFacts(_ wanted: DatagramReception) throws {
        let own = try DatagramParty("0.0.0.0", wanted: wanted)
        let peers = try (0..<4).map { mark in
            let peer = try DatagramParty()
            try peer.descriptor.set(.trafficClass, to: mark)
            return peer
        }
        for number in 0..<8 {
            let target = try own.address(on: "127.0.1.\(number + 1)")
            #expect(peers[number % 4].send([[UInt8(number)]], to: target).isComplete(1))
        }
        guard case .received = own.receiver.receive(from: own.descriptor, atMost: 8) else {
            Issue.record("nothing arrived")
            return
        }
        var taken: [Taken] = []
        while let datagram = own.receiver.next() { taken.append(Taken(datagram)) }
        #expect(taken.map(\.bytes) == (0..<8).map { [UInt8($0)] }, "one call receives all of them")
        for (number, datagram) in taken.enumerated() {
            #expect(datagram.arrival.localAddress == (try own.address(on: "127.0.1.\(number + 1)")))
            #expect(datagram.arrival.ecn.rawValue == UInt8(number % 4))
            #expect((datagram.arrival.timeSince1970 != nil) == own.reception.contains(.timestamps))
        }
    }

    // MARK: - Sent in batches

    /// A segmented run, single datagrams and source addresses, all in one sendmmsg(2).
    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("127.0.0.1", .both), ("::1", .ipv6)])
    func eachMessageOfABatchHasItsOwnSource(_ host: String, _ families: DatagramDescriptor.Families) throws {
        let own = try DatagramParty(families == .ipv4 ? "0.0.0.0" : "::", families: families)
        let peer = try DatagramParty(host, families: families == .ipv6 ? .ipv6 : .ipv4)
        let sources = (families == .ipv6 ? ["::1"] : (1...4).map { "127.0.2.\($0)" })
        var (batch, expected) = ([Payload](), [String]())
        for number in 0..<48 {
            // Runs of three.
            let source = sources[number / 3 % sources.count]
            let address = try SocketEndpoint.loopback(source)
            batch.append(
                Payload([UInt8(number), 1, 2], to: try peer.address, from: DatagramSource(address: InternetAddress(address))))
            expected.append(source)
        }
        #expect(own.send(batch).isComplete(48))
        let taken = try peer.take(48)
        #expect(taken.map { $0.bytes[0] } == (0..<48).map { UInt8($0) })
        #expect(taken.map(\.sender.host) == expected)
    }

    /// The kernel rejects a nonexistent interface, only for one message in a batch.
    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6)])
    func theInterfaceOfASourceIsTheOneThatIsUsed(_ host: String, _ families: DatagramDescriptor.Families) throws {
        let (own, peer) = (try DatagramParty(host, families: families), try DatagramParty(host, families: families))
        let (loopback, missing) = (
            DatagramSource(address: nil, interfaceIndex: if_nametoindex("lo")),
            DatagramSource(address: nil, interfaceIndex: 0x7FFF_FFF0)
        )
        let target = try peer.address
        #expect(own.send([[1]], to: target, from: loopback).isComplete(1))
        #expect(own.send([[2]], to: target, from: missing).failures.count == 1)
        let report = own.send([
            Payload([3], to: target, from: loopback), Payload([4], to: target, from: missing),
            Payload([5], to: target, from: loopback),
        ])
        #expect(report.handledCount == 3 && report.failures.map(\.position) == [1])
        #expect(try peer.take(3).map(\.bytes) == [[1], [3], [5]])
    }
}

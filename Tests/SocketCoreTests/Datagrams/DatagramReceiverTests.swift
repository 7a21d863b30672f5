import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct DatagramReceiverTests {
    /// The original treated an empty datagram as the end, and closed the socket.
    @Test(arguments: [DatagramReception(), .coalescing])
    func aDatagramOfZeroBytesIsADatagram(wanted: DatagramReception) throws {
        let (own, peer) = (try DatagramParty(wanted: wanted), try DatagramParty())
        #expect(peer.send([[], [1], [], []], to: try own.address).isComplete(4))
        let taken = try own.take(4)
        #expect(taken.map(\.bytes) == [[], [1], [], []])
        #expect(taken.allSatisfy { !$0.arrival.isTruncated })
        #expect(try taken.allSatisfy { try $0.sender == peer.address })
    }

    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6)])
    func aDatagramSaysWhereItCameTo(_ host: String, _ families: DatagramDescriptor.Families) throws {
        let own = try DatagramParty(families == .ipv4 ? "0.0.0.0" : "::", families: families)
        let peer = try DatagramParty(host, families: families)
        let target = try own.address(on: host)
        peer.send([[1]], to: target)
        let arrival = try #require(try own.take(1).first).arrival
        #expect(arrival.localAddress == target)
        #expect(arrival.interfaceIndex == if_nametoindex("lo") && arrival.interfaceName == "lo")
        #expect(arrival.fullSize == 1 && arrival.ecn == .notECT && arrival.timeSince1970 == nil)
        let replySource = DatagramSource(
            address: InternetAddress(target.withPort(families == .ipv4 ? 0 : target.port ?? 0)))
        #expect(arrival.replySource == replySource)
    }

    /// All of 127.0.0.0/8 is local. Without a source address, the kernel would reply from 127.0.0.1.
    @Test func aReplyComesFromTheAddressThatWasAsked() throws {
        let (own, peer) = (try DatagramParty("0.0.0.0"), try DatagramParty())
        let target = try own.address(on: "127.8.8.8")
        peer.send([[1]], to: target)
        let request = try #require(try own.take(1).first)
        own.send([[2]], to: request.sender, from: request.arrival.replySource)
        own.send([[3]], to: request.sender)
        #expect(try peer.take(2).map(\.sender.host) == ["127.8.8.8", "127.0.0.1"])
    }

    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6)], 0...3)
    func theMarkOfRoutersIsSeen(_ network: (String, DatagramDescriptor.Families), _ mark: Int) throws {
        let (host, families) = network
        let (own, peer) = (try DatagramParty(host, families: families), try DatagramParty(host, families: families))
        try peer.descriptor.set(.trafficClass, to: 0x28 | mark)
        peer.send([[1]], to: try own.address)
        #expect(try own.take(1).first?.arrival.ecn.rawValue == UInt8(mark))
    }

    @Test func timeStampsComeIfTheyAreAskedFor() throws {
        let (own, peer) = (try DatagramParty(wanted: .timestamps), try DatagramParty())
        #expect(own.reception == .timestamps)
        let before = Date().timeIntervalSince1970.rounded(.down)
        peer.send([[1]], to: try own.address)
        let time = try #require(try own.take(1).first?.arrival.timeSince1970)
        #expect(time >= .seconds(before) && time <= .seconds(before + 3600))
    }

    @Test func aLongDatagramIsCutAndSaysSo() throws {
        let (own, peer) = (try DatagramParty(maximumSize: 100), try DatagramParty())
        let payloads = [99, 100, 101, 1000].map { [UInt8](repeating: UInt8($0 % 251), count: $0) }
        peer.send(payloads, to: try own.address)
        let taken = try own.take(4)
        #expect(taken.map(\.bytes) == payloads.map { Array($0.prefix(100)) })
        #expect(taken.map(\.arrival.isTruncated) == [false, false, true, true])
        #expect(taken.map(\.arrival.fullSize) == [99, 100, 101, 1000])
    }

    @Test func theLargestDatagramsFitTheLargestReceiver() throws {
        for (host, families, size) in [("127.0.0.1", DatagramDescriptor.Families.ipv4, 65_507), ("::1", .ipv6, 65_527)] {
            let own = try DatagramParty(host, families: families, maximumSize: DatagramReceiver.largestSize)
            let peer = try DatagramParty(host, families: families)
            let payload = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            #expect(peer.send([payload], to: try own.address).isComplete(1))
            let taken = try own.take(1)
            #expect(taken.map(\.bytes) == [payload] && taken.first?.arrival.isTruncated == false)
        }
    }

    @Test func oneAtATimeLeavesTheOthersInTheKernel() throws {
        let (own, peer) = (try DatagramParty(), try DatagramParty())
        peer.send([[1], [2], [3]], to: try own.address)
        for byte: UInt8 in 1...3 {
            guard case .received(let mayHaveMore) = own.receiver.receive(from: own.descriptor, atMost: 1) else {
                Issue.record("no datagram \(byte)")
                return
            }
            #expect(mayHaveMore)
            #expect(own.receiver.next().map { Array($0.bytes) } == [byte])
            #expect(own.receiver.isEmpty && own.receiver.next() == nil)
        }
        guard case .wouldBlock = own.receiver.receive(from: own.descriptor) else {
            Issue.record("there is a fourth datagram")
            return
        }
    }

    @Test func fewerThanWereAskedForMeanThatThereAreNoMore() throws {
        let (own, peer) = (try DatagramParty(), try DatagramParty())
        peer.send([[1], [2]], to: try own.address)
        guard case .received(false) = own.receiver.receive(from: own.descriptor) else {
            Issue.record("it may have more")
            return
        }
        #expect(!own.receiver.isEmpty)
        own.receiver.discard()
        #expect(own.receiver.isEmpty && own.receiver.next() == nil)
    }

    @Test func aClosedDescriptorFails() throws {
        let own = try DatagramParty()
        own.descriptor.socket.close()
        guard case .failed(let error) = own.receiver.receive(from: own.descriptor) else {
            Issue.record("a closed descriptor received")
            return
        }
        #expect(error.errno == EBADF)
    }

    @Test func aCountOfTheKernelGoesOnWhereItBeginsAgain() {
        var count = WrappingCount()
        for (kernel, total) in [
            (0, 0), (5, 5), (5, 5), (0x7fff_ffff, 0x7fff_ffff), (0xffff_fffe, 0xffff_fffe), (3, 0x1_0000_0003),
            // An older count has no effect.
            (2, 0x1_0000_0003), (4, 0x1_0000_0004),
        ] as [(UInt32, Int)] {
            count.note(kernel)
            #expect(count.total == total)
        }
    }

    @Test func theKernelsDropsAreCounted() throws {
        var options = SocketOptionSet()
        try options.set(.receiveBufferSize, to: 4096)
        let (own, peer) = (try DatagramParty(options: options), try DatagramParty())
        let sent = 200
        peer.send((0..<sent).map { [UInt8](repeating: UInt8($0), count: 1000) }, to: try own.address)
        let taken = try own.takeArrived().count
        #expect(taken > 0 && taken < sent)
        #expect(own.descriptor.droppedCount == UInt32(sent - taken))
        // The next datagram reports it.
        peer.send([[1]], to: try own.address)
        #expect(try own.take(1).map(\.bytes) == [[1]])
        #expect(own.receiver.droppedCount == sent - taken)
    }
}

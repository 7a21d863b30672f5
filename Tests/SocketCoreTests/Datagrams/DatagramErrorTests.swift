import AsyncSocketsTesting
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// An error of one datagram is reported only for this datagram, and the socket stays open (D17 in the
/// original).
@Suite(.timeLimit(.patient)) struct DatagramErrorTests {
    /// Returns an address without a listener, with a port that the kernel does not assign.
    private func refusing(_ host: String) throws -> SocketEndpoint {
        try .loopback(host, port: RawSocket.freePort())
    }

    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6)])
    func anUnreachablePortIsNamedAndLaterSendsSucceed(_ host: String, _ families: DatagramDescriptor.Families) throws {
        let (own, peer) = (try DatagramParty(host, families: families), try DatagramParty(host, families: families))
        let port = try own.address.port
        let refusing = try refusing(host)
        #expect(own.send([[1]], to: refusing).isComplete(1))
        try own.waitForErrors()
        #expect(own.send([[2], [3]], to: try peer.address).isComplete(2))
        #expect(try peer.take(2).map(\.bytes) == [[2], [3]])
        let (errors, isDrained) = own.descriptor.takeErrors()
        #expect(isDrained && !own.hasErrors)
        #expect(errors.map(\.errno) == [ECONNREFUSED] && errors.map(\.destination) == [refusing])
        #expect(errors.first?.reporter?.host == host)
        #expect(errors.first?.origin == (families == .ipv4 ? .network(type: 3, code: 3) : .network(type: 1, code: 4)))
        #expect(errors.first?.systemError.description == "\(refusing): connection refused")
        #expect(try own.address.port == port)
    }

    @Test func receivingAnswersWithTheErrorOnceAndGoesOn() throws {
        let (own, peer) = (try DatagramParty(), try DatagramParty())
        own.send([[1]], to: try refusing("127.0.0.1"))
        peer.send([[2]], to: try own.address)
        guard case .refused(let error) = own.receiver.receive(from: own.descriptor) else {
            Issue.record("the error was not told")
            return
        }
        #expect(error.errno == ECONNREFUSED)
        #expect(try own.take(1).map(\.bytes) == [[2]])
        #expect(own.descriptor.takeErrors().errors.map(\.errno) == [ECONNREFUSED])
    }

    @Test func moreErrorsThanTheLimitAreTakenInSeveralTurns() throws {
        let own = try DatagramParty()
        let refusing = try refusing("127.0.0.1")
        // The kernel rate-limits ICMP messages, except on the loopback interface.
        for _ in 0..<10 { own.send([[1]], to: refusing) }
        var counts: [Int] = []
        var isDrained = false
        while !isDrained {
            let turn = own.descriptor.takeErrors(atMost: 4)
            counts.append(turn.errors.count)
            isDrained = turn.isDrained
        }
        #expect(counts == [4, 4, 2])
        #expect(!own.hasErrors)
        #expect(own.descriptor.takeErrors().errors.isEmpty)
    }

    /// The error queue counts towards the receive buffer. If it is full, details are dropped, but the socket
    /// stays open.
    @Test func aFloodOfErrorsEndsAndSendsGoOn() throws {
        var options = SocketOptionSet()
        try options.set(.receiveBufferSize, to: 4096)
        let (own, peer) = (try DatagramParty(options: options), try DatagramParty())
        let refusing = try refusing("127.0.0.1")
        let addresses = try [refusing, peer.address]
        #expect(own.send((0..<100).map { Payload([1], to: addresses[$0 % 2]) }).isComplete(100))
        #expect(try peer.takeArrived().count == 50)
        var turns = 0
        while !own.descriptor.takeErrors().isDrained, turns < 100 { turns += 1 }
        #expect(turns < 100 && !own.hasErrors)
    }

    /// An adopted descriptor may not have an error queue.
    @Test func withoutAQueueTheErrorHasNoDetails() throws {
        let own = try DatagramDescriptor(opening: .ipv4)
        try own.connect(to: refusing("127.0.0.1"))
        let sender = DatagramSender(for: own)
        [UInt8(1)].withUnsafeBytes { bytes in
            [OutgoingDatagram(bytes, to: nil)].withUnsafeBufferPointer { #expect(sender.send($0).isComplete(1)) }
        }
        let (errors, isDrained) = own.takeErrors()
        #expect(isDrained && errors.map(\.errno) == [ECONNREFUSED])
        #expect(errors.first?.origin == .unknown && errors.first?.destination == nil)
    }

    @Test func aDatagramFailsWithItsOwnErrorAndTheOthersAreSent() throws {
        let (own, peer) = (try DatagramParty(), try DatagramParty())
        let good = try peer.address
        let broadcast = try SocketEndpoint.loopback("127.255.255.255", port: 9)
        let portless = try SocketEndpoint.loopback("127.0.0.1")
        let foreign = try SocketEndpoint.loopback("::1", port: 9)
        let report = own.send([
            Payload([1], to: good), Payload([2], to: broadcast), Payload([3], to: good),
            Payload([UInt8](repeating: 0, count: 65_508), to: good), Payload([4], to: portless), Payload([5], to: foreign),
            Payload([6], to: good),
        ])
        #expect(report.handledCount == 7 && report.rest == .none && report.earlierErrors.isEmpty)
        #expect(report.failures.map(\.position) == [1, 3, 4, 5])
        #expect(report.failures.map(\.error.errno) == [EACCES, EMSGSIZE, EINVAL, EAFNOSUPPORT])
        #expect(report.failures.first?.error.description.contains("127.255.255.255:9") == true)
        #expect(try peer.take(3).map(\.bytes) == [[1], [3], [6]])
    }

    @Test func theErrorOfAnEarlierDatagramIsNotTheOneOfTheNext() throws {
        let (own, peer) = (try DatagramParty(), try DatagramParty())
        own.send([[1]], to: try refusing("127.0.0.1"))
        let report = own.send([[2]], to: try peer.address)
        #expect(report.isComplete(1) && report.earlierErrors.map(\.errno) == [ECONNREFUSED])
        #expect(try peer.take(1).map(\.bytes) == [[2]])
    }

    @Test func aClosedDescriptorFailsEachDatagram() throws {
        let own = try DatagramParty()
        own.descriptor.socket.close()
        let report = own.send([[1], [2]], to: try .loopback(port: 9))
        #expect(report.handledCount == 2 && report.failures.map(\.error.errno) == [EBADF, EBADF])
    }

    @Test func broadcastNeedsItsOption() throws {
        var options = SocketOptionSet()
        try options.set(.broadcast, to: true)
        let (own, peer) = (try DatagramParty(options: options), try DatagramParty("0.0.0.0"))
        let target = try peer.address(on: "127.255.255.255")
        #expect(own.send([[1]], to: target).isComplete(1))
        let taken = try #require(try peer.take(1).first)
        #expect(taken.arrival.localAddress == target)
        // A broadcast address cannot be a source, so the interface's own address is used.
        #expect(peer.send([[2]], to: taken.sender, from: taken.arrival.replySource).isComplete(1))
        #expect(try own.take(1).first?.sender.host == "127.0.0.1")
    }

    @Test(arguments: [
        ("127.0.0.1", 65_507), ("::1", 65_527), ("::ffff:127.0.0.1", 65_507),
    ])
    func theLargestSizeDependsOnTheVersionOfIP(_ host: String, _ size: Int) throws {
        let address = try SocketEndpoint.loopback(host, port: 9)
        let target = InternetAddress(address)
        #expect(OutgoingDatagram.largestSize(to: target) == size)
        #expect(OutgoingDatagram.sizeError(of: size, to: target) == nil)
        let error = OutgoingDatagram.sizeError(of: size + 1, to: target)
        #expect(error?.errno == EMSGSIZE)
        #expect(error?.description == "\(address): the datagram has \(size + 1) bytes, but at most \(size) are allowed")
        #expect(OutgoingDatagram.largestSize(to: nil) == 65_507)
    }
}

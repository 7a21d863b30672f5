import AsyncSocketsTesting
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct DatagramDescriptorTests {
    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6), ("::", .both)])
    func aBoundSocketHasAPortAndDoesNotBlock(_ host: String, _ families: DatagramDescriptor.Families) throws {
        let party = try DatagramParty(host, families: families)
        #expect(try party.address.host == host && party.address.port != 0)
        #expect(party.descriptor.remoteAddress == nil)
        let number = party.descriptor.socket.rawValue
        #expect(fcntl(number, F_GETFL) & O_NONBLOCK != 0 && fcntl(number, F_GETFD) & FD_CLOEXEC != 0)
        #expect(DatagramDescriptor(takingOver: dup(number)).families == families)
    }

    @Test func bothVersionsOfIPMayHaveOnePortEach() throws {
        let ipv6 = try DatagramParty("::", families: .ipv6)
        let ipv4 = try DatagramParty("0.0.0.0", port: #require(ipv6.address.port))
        let client = try DatagramParty()
        client.send([[4]], to: try ipv4.address(on: "127.0.0.1"))
        #expect(try ipv4.take(1).map(\.bytes) == [[4]])
        #expect(!ipv6.hasInput)
    }

    @Test func oneSocketForBothVersionsHearsAndAnswersBoth() throws {
        let server = try DatagramParty("::", families: .both)
        for (host, families, seen) in [
            ("127.0.0.1", DatagramDescriptor.Families.ipv4, "::ffff:127.0.0.1"), ("127.0.0.9", .ipv4, "::ffff:127.0.0.9"),
            ("::1", .ipv6, "::1"),
        ] {
            let client = try DatagramParty(host == "::1" ? "::1" : "127.0.0.1", families: families)
            let target = try server.address(on: host)
            client.send([[1]], to: target)
            let request = try #require(try server.take(1).first)
            #expect(request.arrival.localAddress?.host == seen)
            #expect(request.arrival.localAddress?.port == target.port)
            #expect(server.send([[2]], to: request.sender, from: request.arrival.replySource).isComplete(1))
            #expect(try client.take(1).first?.sender == target)
        }
    }

    @Test func anAddressThatIsTakenIsAnErrorThatNamesIt() throws {
        let first = try DatagramParty()
        let error = #expect(throws: SystemError.self) { try DatagramParty(port: #require(first.address.port)) }
        #expect(error?.errno == EADDRINUSE)
        #expect(try error?.description.contains(first.address.description) == true)
    }

    @Test func severalSocketsShareAPortIfAllSayTheyDo() throws {
        var options = SocketOptionSet()
        try options.set(.reusePort, to: true)
        let first = try DatagramParty(options: options)
        let second = try DatagramParty(port: #require(first.address.port), options: options)
        #expect(try first.address == second.address)
    }

    // MARK: - Connecting

    @Test(arguments: [("127.0.0.1", DatagramDescriptor.Families.ipv4), ("::1", .ipv6)])
    func aConnectedSocketHearsItsPeerAlone(_ host: String, _ families: DatagramDescriptor.Families) throws {
        let parties = try (0..<3).map { _ in try DatagramParty(host, families: families) }
        let (own, peer, other) = (parties[0], parties[1], parties[2])
        try own.descriptor.connect(to: peer.address)
        #expect(try own.descriptor.remoteAddress == peer.address)
        other.send([[1]], to: try own.address)
        peer.send([[2]], to: try own.address)
        #expect(try own.take(1).map(\.bytes) == [[2]])
        #expect(own.send([[3]], to: nil).isComplete(1))
        #expect(try peer.take(1).map(\.sender) == [own.address])
        #expect(!own.hasInput)
    }

    /// Ports chosen by us, by the kernel in bind, and by the kernel in connect.
    @Test(arguments: [true, false], ["0.0.0.0", "127.0.0.1", nil])
    func thePortOutlivesADisconnection(_ isOurs: Bool, _ host: String?) throws {
        let port = isOurs ? try RawSocket.freePort() : 0
        let (own, peer, other) = (try DatagramParty(host, port: port), try DatagramParty(), try DatagramParty())
        try own.descriptor.connect(to: peer.address)
        let local = try own.address(on: "127.0.0.1")
        #expect(local.port != 0)
        try own.descriptor.disconnect()
        #expect(own.descriptor.remoteAddress == nil)
        #expect(try own.address.host == host ?? "0.0.0.0")
        other.send([[1]], to: local)
        #expect(try own.take(1).map(\.sender) == [other.address])
        #expect(own.send([[2]], to: try other.address).isComplete(1))
        #expect(try other.take(1).map(\.sender) == [local])
    }

    @Test func connectingAgainChangesThePeerAndKeepsThePort() throws {
        let (own, first, second) = (try DatagramParty("0.0.0.0"), try DatagramParty(), try DatagramParty("127.0.0.7"))
        let port = try own.address.port
        for peer in [first, second, first] {
            try own.descriptor.connect(to: peer.address)
            #expect(own.send([[1]], to: nil).isComplete(1))
            #expect(try peer.take(1).first?.sender.port == port)
        }
    }

    // MARK: - Adoption

    @Test func descriptorsOfOtherKindsAreRefusedAndLeftAlone() throws {
        let (tcp, unix) = (try RawSocket(AF_INET), try RawSocket.pair(SOCK_DGRAM))
        let file = open("/dev/null", O_RDONLY)
        defer { close(file) }
        for (number, errno) in [
            (-1, EBADF), (file, ENOTSOCK), (tcp.descriptor, ESOCKTNOSUPPORT), (unix.0.descriptor, EAFNOSUPPORT),
        ] {
            let error = #expect(throws: SystemError.self) { try DatagramDescriptor.check(number) }
            #expect(error?.errno == errno)
            #expect(number < 0 || fcntl(number, F_GETFD) >= 0)
        }
        let lite = Glibc.socket(AF_INET, Int32(SOCK_DGRAM.rawValue), Int32(IPPROTO_UDPLITE))
        guard lite >= 0 else { return }
        defer { close(lite) }
        #expect(throws: SystemError.self) { try DatagramDescriptor.check(lite) }.map { #expect($0.errno == ESOCKTNOSUPPORT) }
    }

    @Test func anInheritedSocketIsHandedOnOnce() throws {
        let socket = try RawSocket.bound(to: .loopback(), SOCK_DGRAM)
        let inherited = InheritedDescriptor(socket.duplicate(), name: "dns")
        let descriptor = try inherited.takeDatagramSocket()
        #expect(try descriptor.localAddress == socket.localAddress)
        #expect(fcntl(descriptor.socket.rawValue, F_GETFL) & O_NONBLOCK != 0)
        let error = #expect(throws: SystemError.self) { try inherited.takeDatagramSocket() }
        #expect(error?.errno == EBADF && error?.description.contains("dns") == true)
    }

    @Test func anInheritedListenerIsNotTakenForDatagrams() throws {
        let inherited = try InheritedDescriptor(RawSocket.listening().duplicate(), name: "web")
        let error = #expect(throws: SystemError.self) { try inherited.takeDatagramSocket() }
        #expect(error?.errno == ESOCKTNOSUPPORT && error?.description.contains("web") == true)
        #expect(try inherited.takeListener().localAddress != nil)
    }

    // MARK: - Options

    @Test func optionsHoldForBothVersionsOfIP() throws {
        var options = SocketOptionSet()
        try options.set(.trafficClass, to: 8)
        let descriptor = try DatagramDescriptor(opening: .both, options: options)
        try descriptor.set(.multicastTTL, to: 9)
        try descriptor.set(.pathMTUDiscovery, to: .always)
        #expect(try descriptor.socket.value(of: .multicastTTL) == 9)
        #expect(try descriptor.socket.value(of: .pathMTUDiscovery) == .always)
        for (option, value) in [(IP_TOS, 8), (IP_MULTICAST_TTL, 9), (IP_MTU_DISCOVER, 2)] as [(Int32, Int32)] {
            var answer: Int32 = 0
            var length = socklen_t(4)
            #expect(getsockopt(descriptor.socket.rawValue, Int32(IPPROTO_IP), option, &answer, &length) == 0)
            #expect(answer == value)
        }
    }

    @Test func theSizesOfBuffersAndBroadcastAreOptions() throws {
        let descriptor = try DatagramDescriptor(opening: .ipv4)
        try descriptor.set(.receiveBufferSize, to: 10_000)
        try descriptor.set(.sendBufferSize, to: 12_000)
        #expect(try descriptor.socket.value(of: .receiveBufferSize) == 20_000)
        #expect(try descriptor.socket.value(of: .sendBufferSize) == 24_000)
        #expect(try !descriptor.socket.value(of: .broadcast))
        try descriptor.set(.broadcast, to: true)
        #expect(try descriptor.socket.value(of: .broadcast))
    }

    /// The device's MTU is 65,536 bytes, and an IP packet has one byte less.
    @Test func thePathToThePeerHasALargestPacket() throws {
        let (own, peer) = (try DatagramParty(), try DatagramParty())
        #expect(throws: SystemError.self) { try own.descriptor.pathMTU }.map { #expect($0.errno == ENOTCONN) }
        try own.descriptor.connect(to: peer.address)
        #expect(try own.descriptor.pathMTU == 65_535)
    }
}

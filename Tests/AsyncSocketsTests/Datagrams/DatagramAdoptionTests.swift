import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// UDP sockets adopted from other code behave like those created by the library.
@Suite(.timeLimit(.patient)) struct DatagramAdoptionTests {
    @Test func theOptionsAndTheFactsAreThoseOfAnyOther() async throws {
        let (raw, client) = (try RawSocket.bound(to: .loopback("0.0.0.0"), SOCK_DGRAM), try AsyncUDPSocket.bound())
        let socket = AsyncUDPSocket()
        socket.receivesTimestamps = true
        try socket.setOption(.receiveBufferSize, to: 100_000)
        try socket.adopt(raw.duplicate())
        #expect(try socket.option(.receiveBufferSize) == 200_000)
        try await client.send(Data([1]), to: "127.0.0.9", port: socket.localPort)
        let datagram = try await socket.receive()
        #expect(datagram.arrival.localAddress?.description == "127.0.0.9:\(socket.localPort)")
        #expect(datagram.arrival.interfaceName == "lo" && datagram.arrival.timeSince1970 != nil)
        try await socket.send(Data([2]), inReplyTo: datagram)
        #expect(try await client.receive().sender.host == "127.0.0.9")
    }

    @Test func anOptionThatTheKernelRefusesLeavesTheDescriptorToItsOwner() throws {
        let number = try RawSocket.bound(to: .loopback(), SOCK_DGRAM).duplicate()
        defer { close(number) }
        let inherited = InheritedDescriptor(dup(number), name: "dns.socket")
        let socket = AsyncUDPSocket()
        try socket.setOption(.bindToDevice, to: "nowhere0")
        for adopt in [{ try socket.adopt(number) }, { try socket.adopt(inherited) }] {
            let error = #expect(throws: AsyncSocketError.self) { try adopt() }
            #expect(error?.errno == ENODEV, "\(String(describing: error))")
        }
        #expect(fcntl(number, F_GETFD) >= 0 && !socket.isOpen)
        let other = AsyncUDPSocket()
        try other.adopt(inherited)
        #expect(other.isOpen)
    }

    /// The kernel assigns a port on the first send.
    @Test func oneThatIsNotBoundTellsItsPortLater() async throws {
        let peer = try AsyncUDPSocket.bound()
        let socket = AsyncUDPSocket()
        try socket.adopt(Glibc.socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0))
        #expect(socket.isOpen && socket.localPort == 0)
        try await socket.send(Data([1]), to: peer.address)
        try await peer.send(Data([2]), inReplyTo: peer.receive())
        let datagram = try await socket.receive()
        #expect(datagram.arrival.localAddress?.port == socket.localPort && socket.localPort != 0)
    }

    /// An IPv6 socket without `IPV6_V6ONLY` supports both families.
    @Test(arguments: [("::", true, true), ("::", false, false), ("::1", true, false), ("::ffff:127.0.0.1", true, true)])
    func oneForBothVersionsOfIPSaysSo(_ host: String, _ isForBoth: Bool, _ isIPv4: Bool) async throws {
        let made = try DatagramParty(host, families: isForBoth ? .both : .ipv6)
        let socket = AsyncUDPSocket()
        try socket.adopt(dup(made.descriptor.socket.rawValue))
        #expect(socket.isIPv4 == isIPv4 && socket.isIPv6)
        let client = try AsyncUDPSocket.bound("127.0.0.1")
        if isIPv4 {
            try await client.send(Data([4]), to: "127.0.0.1", port: socket.localPort)
            #expect(try await socket.receive().data == Data([4]))
        }
        socket.disconnect()
        #expect(!socket.isIPv4 && !socket.isIPv6)
    }

    /// A coalesced piece with several datagrams exceeds the receive size.
    @Test func piecesOfOneThatCoalescesAreTakenApart() async throws {
        let (made, peer) = (try DatagramParty(wanted: .coalescing), try DatagramParty())
        let socket = AsyncUDPSocket()
        socket.maximumReceiveSize = 600
        try socket.adopt(dup(made.descriptor.socket.rawValue))
        let payloads = (0..<40).map { [UInt8](repeating: UInt8($0), count: 500) } + [[7]]
        #expect(peer.send(payloads, to: try made.address).isComplete(payloads.count))
        for payload in payloads {
            let datagram = try await socket.receive(timeout: .patient)
            #expect(datagram.data == Data(payload) && !datagram.arrival.isTruncated)
        }
    }

    @Test func thePeerOfAConnectedOneIsForgottenAndFoundAgain() async throws {
        let (peer, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let party = try DatagramParty()
        try party.descriptor.connect(to: peer.address)
        let socket = AsyncUDPSocket()
        // An earlier failure leaves nothing behind.
        socket.resolver = Resolver(concurrency: 1) { .failure(ResolveError($0, code: EAI_NONAME)) }
        await #expect(throws: AsyncSocketError.self) { try await socket.connect(to: "some.example", port: 9) }
        try socket.adopt(dup(party.descriptor.socket.rawValue))
        #expect(try socket.connectedAddress == peer.address)
        let busy = await #expect(throws: AsyncSocketError.self) { try await socket.connect(to: other.address) }
        #expect(busy?.code == .badConfiguration)
        socket.dissolveAssociation()
        try await socket.connect(to: other.address)
        try await socket.send(Data([1]))
        #expect(try await other.receive().data == Data([1]))
    }
}

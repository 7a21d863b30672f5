import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// IPv4-mapped IPv6 addresses such as `::ffff:127.0.0.1`, which programs with one address type pass.
@Suite struct MappedAddressTests {
    private func mapped(_ socket: AsyncUDPSocket) throws -> SocketEndpoint {
        try .loopback("::ffff:127.0.0.1", port: socket.localPort)
    }

    @Test func datagramsReachAMappedAddress() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), AsyncUDPSocket())
        try await socket.send(Data([1]), to: mapped(peer))
        try await socket.send(Data([2]), to: "::ffff:127.0.0.1", port: peer.localPort)
        socket.send(Data([3]), toAddress: try mapped(peer), withTimeout: -1, tag: 0)
        for number in 1...3 { #expect(try await peer.receive().data == Data([UInt8(number)])) }
    }

    @Test(arguments: [false, true]) func aSocketConnectsToAMappedAddress(isText: Bool) async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), AsyncUDPSocket())
        if isText {
            try await socket.connect(to: "::ffff:127.0.0.1", port: peer.localPort)
        } else {
            try await socket.connect(to: mapped(peer))
        }
        #expect(socket.connectedAddress == peer.localAddress)
        try await socket.send(Data([1]))
        try await peer.send(Data([2]), inReplyTo: peer.receive())
        #expect(try await socket.receive().data == Data([2]))
        try await socket.send(Data([3]), to: mapped(peer))
        #expect(try await peer.receive().data == Data([3]))
    }

    @Test func aSocketBindsToAMappedAddress() async throws {
        let socket = AsyncUDPSocket()
        try socket.bind(toAddress: .loopback("::ffff:127.0.0.1"))
        #expect(socket.localHost == "127.0.0.1")
        let listener = try DatagramListener(address: .loopback("::ffff:127.0.0.1"))
        #expect(listener.localAddress?.host == "127.0.0.1")
        await listener.close()
    }

    /// Whether IPv4 is enabled decides, because datagrams to the address are IPv4 packets.
    @Test func aMappedAddressRequiresIPv4() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), AsyncUDPSocket())
        socket.isIPv4Enabled = false
        let error = await #expect(throws: AsyncSocketError.self) { try await socket.send(Data([1]), to: mapped(peer)) }
        #expect(error?.code == .noUsableAddress)
        socket.isIPv4Enabled = true
        socket.isIPv6Enabled = false
        try await socket.send(Data([2]), to: mapped(peer))
        #expect(try await peer.receive().data == Data([2]))
    }

    /// A socket for both IP versions reports senders in the mapped form, and accepts the form as it is.
    @Test func anAdoptedSocketForBothVersionsUsesTheMappedForm() async throws {
        let (peer, made) = (try AsyncUDPSocket.bound(), try DatagramParty("::", families: .both))
        let socket = AsyncUDPSocket()
        try socket.adopt(dup(made.descriptor.socket.rawValue))
        try await peer.send(Data([1]), to: "127.0.0.1", port: socket.localPort)
        let datagram = try await socket.receive()
        #expect(datagram.sender == (try mapped(peer)))
        try await socket.send(Data([2]), to: datagram.sender)
        #expect(try await peer.receive().data == Data([2]))
        for address in [datagram.sender, try peer.address] {
            let asking = Task { try await socket.exchange(Data([9]), with: address, timeout: .patient) { _ in true } }
            try await peer.send(Data([8]), inReplyTo: peer.receive())
            #expect(try await asking.value.data == Data([8]))
        }
        try await socket.connect(to: datagram.sender)
        try await socket.send(Data([3]), to: datagram.sender)
        #expect(try await peer.receive().data == Data([3]))
    }
}

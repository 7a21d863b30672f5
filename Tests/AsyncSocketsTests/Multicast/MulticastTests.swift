import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Multicast and broadcast on the loopback interface. `EngineProbe` does the same between two namespaces.
@Suite struct MulticastTests {
    private static let group = "239.255.7.77"

    private func sender() throws -> AsyncUDPSocket {
        let sender = try AsyncUDPSocket.bound()
        try sender.setMulticastInterface("lo")
        try sender.setOption(.broadcast, to: true)
        return sender
    }

    private func receivers(of socket: AsyncUDPSocket) -> [SocketDescriptor] {
        socket.connection?.record.withLock { $0.groupReceivers.descriptors.map(\.socket) } ?? []
    }

    /// A socket bound to `127.0.0.1` receives datagrams for a group between joining and leaving it.
    @Test(arguments: ["lo", "127.0.0.1", nil]) func aSocketBoundToAnInterfaceHearsItsGroups(_ interface: String?) async throws {
        let (socket, sender) = (AsyncUDPSocket(), try sender())
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        let port = socket.localPort
        try socket.joinMulticastGroup(Self.group, onInterface: interface)
        try await sender.send(Data([1]), to: Self.group, port: port)
        let datagram = try await socket.receive()
        #expect(datagram.data == Data([1]) && datagram.arrival.localAddress?.host == Self.group)
        try await socket.send(Data([2]), inReplyTo: datagram)
        let reply = try await sender.receive()
        #expect(reply.data == Data([2]) && reply.sender == socket.localAddress)
        try await sender.send(Data([3]), to: "127.0.0.1", port: port)
        #expect(try await socket.receive().data == Data([3]))
        #expect(socket.localAddresses.count == 1)

        try socket.leaveMulticastGroup(Self.group, onInterface: interface)
        try await sender.send(Data([4]), to: Self.group, port: port)
        try await sender.send(Data([5]), to: "127.0.0.1", port: port)
        #expect(try await socket.receive().data == Data([5]))
        let again = #expect(throws: AsyncSocketError.self) {
            try socket.leaveMulticastGroup(Self.group, onInterface: interface)
        }
        #expect(again?.errno == EADDRNOTAVAIL)
    }

    @Test func twoSocketsOnOneInterfaceHearTheSameGroup() async throws {
        let (first, second, sender) = (AsyncUDPSocket(), AsyncUDPSocket(), try sender())
        try first.bind(toPort: 0, interface: "127.0.0.1")
        try second.bind(toPort: first.localPort, interface: "127.0.0.2")
        for socket in [first, second] { try socket.joinMulticastGroup(Self.group, onInterface: "lo") }
        try await sender.send(Data([1]), to: Self.group, port: first.localPort)
        for socket in [first, second] { #expect(try await socket.receive().data == Data([1])) }
    }

    /// The descriptor of a group closes with its last membership, and also with the socket.
    @Test func theDescriptorOfAGroupIsClosed() async throws {
        let socket = AsyncUDPSocket()
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        weak var left: SocketDescriptor?
        weak var kept: SocketDescriptor?
        do {
            try socket.joinMulticastGroup(Self.group)
            try socket.joinMulticastGroup("239.255.7.78")
            #expect(receivers(of: socket).count == 2)
            (left, kept) = (receivers(of: socket).first, receivers(of: socket).last)
            let twice = #expect(throws: AsyncSocketError.self) { try socket.joinMulticastGroup(Self.group) }
            #expect(twice?.errno == EADDRINUSE)
            #expect(throws: AsyncSocketError.self) { try socket.joinMulticastGroup("192.0.2.1") }
            #expect(receivers(of: socket).count == 2)
            try socket.leaveMulticastGroup(Self.group)
        }
        try await eventually("it is closed") { left == nil }
        #expect(kept != nil)
        socket.disconnect()
        try await eventually("it is closed too") { kept == nil }
    }

    /// The option may be set before or after the socket is bound.
    @Test(arguments: [false, true]) func aSocketBoundToAnInterfaceHearsBroadcasts(isSetBefore: Bool) async throws {
        let (socket, sender) = (AsyncUDPSocket(), try sender())
        if isSetBefore { try socket.setOption(.broadcast, to: true) }
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        if !isSetBefore { try socket.setOption(.broadcast, to: true) }
        try await sender.send(Data([1]), to: "127.255.255.255", port: socket.localPort)
        let datagram = try await socket.receive()
        #expect(datagram.data == Data([1]) && datagram.arrival.localAddress?.host == "127.255.255.255")
        try await socket.send(Data([2]), inReplyTo: datagram)
        #expect(try await sender.receive().sender == socket.localAddress)

        try socket.setOption(.broadcast, to: false)
        #expect(receivers(of: socket).isEmpty)
        try await sender.send(Data([3]), to: "127.255.255.255", port: socket.localPort)
        try await sender.send(Data([4]), to: "127.0.0.1", port: socket.localPort)
        #expect(try await socket.receive().data == Data([4]))
    }

    /// A connected socket receives only from its peer, so its groups are left.
    @Test func connectingLeavesTheGroupsOfABoundSocket() async throws {
        let (socket, peer) = (AsyncUDPSocket(), try sender())
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        try socket.joinMulticastGroup(Self.group)
        try await socket.connect(to: peer.address)
        #expect(receivers(of: socket).isEmpty)
        try await socket.send(Data([1]))
        try await peer.send(Data([2]), inReplyTo: peer.receive())
        #expect(try await socket.receive().data == Data([2]))
    }

    /// A group that a connected socket joins is heard once the socket is disconnected.
    @Test func disconnectingKeepsTheGroupsJoinedSince() async throws {
        let (socket, peer) = (AsyncUDPSocket(), try sender())
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        try await socket.connect(to: peer.address)
        try socket.joinMulticastGroup(Self.group)
        socket.dissolveAssociation()
        try await eventually("it is disconnected") { !socket.isConnected }
        try await peer.send(Data([1]), to: Self.group, port: socket.localPort)
        #expect(try await socket.receive().data == Data([1]))
    }

    @Test(arguments: ["0.0.0.0", "127.0.0.1"]) func aListenerHearsItsGroups(_ host: String) async throws {
        let listener = try DatagramListener(address: .loopback(host))
        try listener.joinMulticastGroup(Self.group, onInterface: "lo")
        let serving = listener.echoing()
        let client = try sender()
        for number in 1...3 {
            try await client.send(Data([UInt8(number)]), to: Self.group, port: listener.localPort)
            let reply = try await client.receive()
            #expect(reply.data == Data([UInt8(number)]) && reply.sender.host == "127.0.0.1")
            #expect(reply.sender.port == listener.localPort)
        }
        #expect(listener.snapshot.openCount == 1)
        try await client.send(Data([9]), to: "127.0.0.1", port: listener.localPort)
        #expect(try await client.receive().data == Data([9]))
        #expect(listener.snapshot.openCount == 2)

        // A group that is joined and left while the listener runs.
        try listener.joinMulticastGroup("239.255.7.79", onInterface: "lo")
        try await client.send(Data([4]), to: "239.255.7.79", port: listener.localPort)
        #expect(try await client.receive().data == Data([4]))
        try listener.leaveMulticastGroup("239.255.7.79", onInterface: "lo")
        try await client.send(Data([5]), to: "239.255.7.79", port: listener.localPort)
        try await client.send(Data([6]), to: Self.group, port: listener.localPort)
        #expect(try await client.receive().data == Data([6]))
        await listener.close(timeout: .zero)
        try await serving.value
        let late = #expect(throws: AsyncSocketError.self) { try listener.joinMulticastGroup(Self.group, onInterface: "lo") }
        #expect(late?.code == .closed)
    }

    @Test func theTextOfAGroupIsChecked() throws {
        let listener = try DatagramListener(address: .loopback())
        let wrong: [(group: String, interface: String?, code: AsyncSocketError.Code)] = [
            ("group.example", nil, .badParameter), ("239.255.7.77", "nothing0", .badParameter),
            ("ff02::fb", nil, .badConfiguration),
        ]
        for (group, interface, code) in wrong {
            let error = #expect(throws: AsyncSocketError.self) { try listener.joinMulticastGroup(group, onInterface: interface) }
            #expect(error?.code == code)
        }
    }
}

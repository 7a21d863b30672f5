import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Several receivers or memberships of a group, one of which joins late, leaves or closes. The rest notice
/// nothing.
@Suite(.timeLimit(.patient)) struct MulticastCompanionTests {
    private static let group = "239.255.7.90"

    private func sender(_ host: String = "127.0.0.1") throws -> AsyncUDPSocket {
        let sender = try AsyncUDPSocket.bound(host)
        try sender.setMulticastInterface("lo")
        return sender
    }

    /// Two sockets with the same port on two addresses of the loopback interface.
    private func receivers() throws -> (AsyncUDPSocket, AsyncUDPSocket) {
        let (first, second) = (AsyncUDPSocket(), AsyncUDPSocket())
        try first.bind(toPort: 0, interface: "127.0.0.1")
        try second.bind(toPort: first.localPort, interface: "127.0.0.2")
        return (first, second)
    }

    /// Sends to a receiver's own address. If this arrives first, an earlier datagram for the group was not
    /// delivered to the receiver.
    private func expectNothingEarlier(_ socket: AsyncUDPSocket, from sender: AsyncUDPSocket) async throws {
        try await sender.send(Data([255]), to: socket.address)
        #expect(try await socket.receive().data == Data([255]))
    }

    enum Leaving: CaseIterable, Sendable { case leaves, closes, connects }

    @Test(arguments: Leaving.allCases, [0, 1]) func whoStaysGoesOnReceiving(_ leaving: Leaving, _ index: Int) async throws {
        let (first, second) = try receivers()
        let sender = try sender()
        for socket in [first, second] { try socket.joinMulticastGroup(Self.group, onInterface: "lo") }
        try await sender.send(Data([1]), to: Self.group, port: first.localPort)
        for socket in [first, second] { #expect(try await socket.receive().data == Data([1])) }
        let (goes, stays) = index == 0 ? (first, second) : (second, first)
        // The receive is pending while the other socket leaves.
        let waiting = Task { try await stays.receive().data }
        switch leaving {
        case .leaves: try goes.leaveMulticastGroup(Self.group, onInterface: "lo")
        case .closes: goes.disconnect()
        case .connects: try await goes.connect(to: sender.address)
        }
        try await sender.send(Data([2]), to: Self.group, port: stays.localPort)
        #expect(try await waiting.value == Data([2]))
        if leaving != .closes { try await expectNothingEarlier(goes, from: sender) }
        guard leaving == .leaves else { return }
        // A socket that rejoins does not receive the datagrams in between.
        try goes.joinMulticastGroup(Self.group, onInterface: "lo")
        try await sender.send(Data([3]), to: Self.group, port: stays.localPort)
        for socket in [first, second] { #expect(try await socket.receive().data == Data([3])) }
    }

    /// The late one gets later datagrams only, even if a receive was already waiting.
    @Test(arguments: [false, true]) func whoJoinsLateReceivesFromThenOn(isWaiting: Bool) async throws {
        let (first, second) = try receivers()
        let sender = try sender()
        try first.joinMulticastGroup(Self.group, onInterface: "lo")
        let waiting = isWaiting ? Task.immediate { try await second.receive().data } : nil
        try await sender.send(Data([1]), to: Self.group, port: first.localPort)
        #expect(try await first.receive().data == Data([1]))
        try second.joinMulticastGroup(Self.group, onInterface: "lo")
        try await sender.send(Data([2]), to: Self.group, port: first.localPort)
        #expect(try await first.receive().data == Data([2]))
        if let waiting {
            #expect(try await waiting.value == Data([2]))
        } else {
            #expect(try await second.receive().data == Data([2]))
        }
    }

    /// Two groups of one socket: after leaving one, only the other is heard.
    @Test(arguments: [0, 1]) func aSocketKeepsItsOtherGroup(_ left: Int) async throws {
        let (socket, sender) = (AsyncUDPSocket(), try sender())
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        let groups = [Self.group, "239.255.7.91"]
        for group in groups { try socket.joinMulticastGroup(group) }
        try socket.leaveMulticastGroup(groups[left])
        try await sender.send(Data([1]), to: groups[left], port: socket.localPort)
        try await sender.send(Data([2]), to: groups[1 - left], port: socket.localPort)
        let datagram = try await socket.receive()
        #expect(datagram.data == Data([2]) && datagram.arrival.localAddress?.host == groups[1 - left])
    }

    /// Two memberships of one group, each for one sender. The group's descriptor stays until the last one.
    @Test(arguments: [0, 1]) func aMembershipForOneSenderOutlivesTheOther(_ left: Int) async throws {
        let socket = AsyncUDPSocket()
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        let hosts = ["127.0.0.3", "127.0.0.4"]
        let senders = try hosts.map { try sender($0) }
        for host in hosts { try socket.joinMulticastGroup(Self.group, onInterface: "lo", fromSource: host) }
        for (number, sender) in senders.enumerated() {
            try await sender.send(Data([UInt8(number)]), to: Self.group, port: socket.localPort)
            #expect(try await socket.receive().data == Data([UInt8(number)]))
        }
        try socket.leaveMulticastGroup(Self.group, onInterface: "lo", fromSource: hosts[left])
        try await senders[left].send(Data([7]), to: Self.group, port: socket.localPort)
        try await senders[1 - left].send(Data([8]), to: Self.group, port: socket.localPort)
        #expect(try await socket.receive().data == Data([8]))
        try socket.leaveMulticastGroup(Self.group, onInterface: "lo", fromSource: hosts[1 - left])
        try await senders[1 - left].send(Data([9]), to: Self.group, port: socket.localPort)
        try await expectNothingEarlier(socket, from: senders[1 - left])
        #expect(socket.connection?.record.withLock { $0.groupReceivers.descriptors.isEmpty } == true)
    }

    /// One of two listeners leaves the group. The peers of both remain.
    @Test(arguments: [0, 1]) func aListenerThatLeavesKeepsItsPeers(_ left: Int) async throws {
        let first = try DatagramListener(address: .loopback())
        let second = try DatagramListener(address: .loopback("127.0.0.2", port: first.localPort))
        let (listeners, client) = ([first, second], try sender())
        let serving = listeners.map { $0.echoing() }
        for listener in listeners { try listener.joinMulticastGroup(Self.group, onInterface: "lo") }
        try await client.send(Data([1]), to: Self.group, port: first.localPort)
        for _ in 0..<2 { #expect(try await client.receive().data == Data([1])) }
        try listeners[left].leaveMulticastGroup(Self.group, onInterface: "lo")
        try await client.send(Data([2]), to: Self.group, port: first.localPort)
        #expect(try await client.receive().data == Data([2]))
        #expect(listeners.map(\.snapshot.openCount) == [1, 1])
        // Both still have their own address.
        for (number, listener) in listeners.enumerated() {
            try await client.send(Data([UInt8(10 + number)]), to: #require(listener.localAddress))
            #expect(try await client.receive().data == Data([UInt8(10 + number)]))
            #expect(listener.snapshot.openCount == 2)
        }
        for listener in listeners { await listener.close(timeout: .zero) }
        for task in serving { try await task.value }
    }
}

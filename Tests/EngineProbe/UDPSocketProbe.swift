internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation
internal import SocketTestSupport

/// Multicast and broadcast with `AsyncUDPSocket` between the namespaces of `DatagramProbe`.
enum UDPSocketProbe {
    /// Runs a body in the other namespace. A socket stays in the namespace in which it was created.
    typealias Elsewhere = (() throws -> Void) throws -> Void

    static func run(_ elsewhere: Elsewhere) throws {
        for (group, host, own, stranger) in [
            ("239.255.1.9", "192.0.2.2", "192.0.2.1", "192.0.2.99"),
            ("ff05::1:9", "2001:db8::2", "2001:db8::1", "2001:db8::99"),
        ] {
            try groups(group, host, elsewhere)
            // A socket bound to the address of one interface.
            try groups(group, host, boundTo: "veth2", elsewhere)
            try oneSource(group.contains(":") ? "ff35::8000:9" : "232.1.1.9", host, own: own, stranger: stranger, elsewhere)
        }
        for interface in [nil, "veth2"] {
            for address in ["192.0.2.255", "255.255.255.255"] { try broadcast(to: address, boundTo: interface, elsewhere) }
        }
    }

    /// Returns a sending socket here, and a receiving one there.
    private static func parties(
        _ elsewhere: Elsewhere, boundTo interface: String? = nil
    ) throws -> (sender: AsyncUDPSocket, receiver: AsyncUDPSocket, Inbox) {
        let inbox = Inbox()
        let (sender, receiver) = (AsyncUDPSocket(), AsyncUDPSocket(inlineDelegate: inbox))
        try sender.bind(toPort: 0)
        try sender.setMulticastInterface("veth1")
        try elsewhere { try receiver.bind(toPort: 0, interface: interface) }
        try receiver.beginReceiving()
        return (sender, receiver, inbox)
    }

    private static func groups(
        _ group: String, _ host: String, boundTo interface: String? = nil, _ elsewhere: Elsewhere
    ) throws {
        let (sender, receiver, inbox) = try parties(elsewhere, boundTo: interface)
        let port = receiver.localPort
        let (target, unicast) = (try SocketEndpoint.loopback(group, port: port), try SocketEndpoint.loopback(host, port: port))
        func send(_ number: UInt8, to address: SocketEndpoint) {
            sender.send(Data([number]), toAddress: address, withTimeout: -1, tag: Int(number))
        }
        send(0, to: target)
        send(1, to: unicast)
        try inbox.expect(1, "before it has joined \(group)")
        try elsewhere { try receiver.joinMulticastGroup(group, onInterface: interface == nil ? "veth2" : nil) }
        send(2, to: target)
        try inbox.expect(2, "as a member of \(group)")
        try elsewhere { try receiver.leaveMulticastGroup(group, onInterface: interface == nil ? "veth2" : nil) }
        send(3, to: target)
        send(4, to: unicast)
        try inbox.expect(4, "after it has left \(group)")
        withExtendedLifetime((sender, receiver)) {}
    }

    private static func oneSource(
        _ group: String, _ host: String, own: String, stranger: String, _ elsewhere: Elsewhere
    ) throws {
        let (sender, receiver, inbox) = try parties(elsewhere)
        let target = try SocketEndpoint.loopback(group, port: receiver.localPort)
        try elsewhere { try receiver.joinMulticastGroup(group, onInterface: "veth2", fromSource: stranger) }
        sender.send(Data([0]), toAddress: target, withTimeout: -1, tag: 0)
        sender.send(Data([1]), toAddress: try .loopback(host, port: receiver.localPort), withTimeout: -1, tag: 1)
        try inbox.expect(1, "of another source")
        try elsewhere { try receiver.joinMulticastGroup(group, onInterface: "veth2", fromSource: own) }
        sender.send(Data([2]), toAddress: target, withTimeout: -1, tag: 2)
        try inbox.expect(2, "of its source")
        withExtendedLifetime((sender, receiver)) {}
    }

    private static func broadcast(to address: String, boundTo interface: String?, _ elsewhere: Elsewhere) throws {
        let (sender, receiver, inbox) = try parties(elsewhere, boundTo: interface)
        try sender.setOption(.broadcast, to: true)
        try sender.setOption(.bindToDevice, to: "veth1")
        if interface != nil { try elsewhere { try receiver.setOption(.broadcast, to: true) } }
        let target = try SocketEndpoint.loopback(address, port: receiver.localPort)
        sender.send(Data([9]), toAddress: target, withTimeout: -1, tag: 9)
        try inbox.expect(9, "by broadcast to \(address)")
        withExtendedLifetime((sender, receiver)) {}
    }
}

private final class Inbox: AsyncUDPSocketDelegate, Sendable {
    private let datagrams = Mailbox<Datagram>()

    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        datagrams.put(datagram)
    }

    func expect(_ number: UInt8, _ what: String) throws {
        let datagram = try datagrams.next()
        guard datagram.data == Data([number]) else { throw ProbeFailure(description: "\(what): \(datagram)") }
    }
}

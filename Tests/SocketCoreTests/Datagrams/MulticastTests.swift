import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct MulticastTests {
    private func group(_ literal: String, _ port: UInt16 = 0) throws -> SocketEndpoint {
        try .loopback(literal, port: port)
    }

    @Test func aGroupIsHeardFromJoiningToLeaving() throws {
        let (own, sender) = (try DatagramParty("0.0.0.0"), try DatagramParty())
        let lo = try InterfaceIndex("lo")
        let group = try own.address(on: "239.255.7.1")
        try sender.descriptor.setMulticastInterface(lo)
        let membership = MulticastMembership(of: group, on: lo)
        for byte: UInt8 in 1...2 {
            sender.send([[0]], to: group)
            try own.descriptor.join(membership)
            sender.send([[byte]], to: group)
            let taken = try #require(try own.take(1).first)
            #expect(taken.bytes == [byte] && taken.arrival.localAddress == group && taken.arrival.interfaceName == "lo")
            // A group cannot be a source.
            #expect(own.send([[9]], to: taken.sender, from: taken.arrival.replySource).isComplete(1))
            #expect(try sender.take(1).map(\.sender.host) == ["127.0.0.1"])
            try own.descriptor.leave(membership)
        }
        sender.send([[0]], to: group)
        #expect(!own.hasInput)
    }

    /// Linux would deliver it to every socket with the port.
    @Test func aGroupThatAnotherSocketHasJoinedIsNotHeard() throws {
        var options = SocketOptionSet()
        try options.set(.reuseAddress, to: true)
        let own = try DatagramParty("0.0.0.0", options: options)
        let other = try DatagramParty("0.0.0.0", port: #require(own.address.port), options: options)
        let sender = try DatagramParty()
        let lo = try InterfaceIndex("lo")
        try sender.descriptor.setMulticastInterface(lo)
        let group = try own.address(on: "239.255.7.2")
        try other.descriptor.join(MulticastMembership(of: group, on: lo))
        sender.send([[1]], to: group)
        #expect(try other.take(1).map(\.bytes) == [[1]])
        #expect(!own.hasInput)
    }

    @Test func aSocketForBothVersionsJoinsGroupsOfIPv4() throws {
        let (own, sender) = (try DatagramParty("::", families: .both), try DatagramParty())
        let lo = try InterfaceIndex("127.0.0.1")
        try sender.descriptor.setMulticastInterface(lo)
        let group = try own.address(on: "239.255.7.3")
        try own.descriptor.join(MulticastMembership(of: group, on: lo))
        sender.send([[1]], to: group)
        let taken = try #require(try own.take(1).first)
        #expect(taken.arrival.localAddress?.host == "::ffff:239.255.7.3")
        #expect(own.send([[2]], to: taken.sender, from: taken.arrival.replySource).isComplete(1))
        #expect(try sender.take(1).map(\.bytes) == [[2]])
    }

    @Test func oneSourceIsHeardAndNotTheOthers() throws {
        let (own, good, bad) = (try DatagramParty("0.0.0.0"), try DatagramParty("127.0.0.2"), try DatagramParty("127.0.0.3"))
        let lo = try InterfaceIndex("lo")
        let group = try own.address(on: "232.0.7.4")
        try own.descriptor.join(MulticastMembership(of: group, from: .loopback("127.0.0.2"), on: lo))
        for party in [bad, good, bad, good] {
            try party.descriptor.setMulticastInterface(lo)
            #expect(party.send([[1]], to: group).isComplete(1))
        }
        #expect(try own.take(2).map(\.sender.host) == ["127.0.0.2", "127.0.0.2"])
        #expect(!own.hasInput)
    }

    @Test func mistakesAreErrorsThatNameTheGroup() throws {
        let descriptor = try DatagramDescriptor(opening: .ipv4)
        let lo = try InterfaceIndex("lo")
        let good = MulticastMembership(of: try group("239.255.7.6"), on: lo)
        func errno(_ body: () throws -> Void) -> CInt? {
            #expect(throws: SystemError.self) { try body() }?.errno
        }
        #expect(errno { try descriptor.leave(good) } == EADDRNOTAVAIL)
        try descriptor.join(good)
        #expect(errno { try descriptor.join(good) } == EADDRINUSE)
        let host = MulticastMembership(of: try group("192.0.2.1"), on: lo)
        #expect(errno { try descriptor.join(host) } == EINVAL)
        let nowhere = MulticastMembership(of: good.group, on: InterfaceIndex(999_999))
        #expect(errno { try descriptor.join(nowhere) } == ENODEV)
        let unix = try #require(SocketEndpoint(unixPath: "/group"))
        #expect(errno { try descriptor.join(MulticastMembership(of: unix)) } == EAFNOSUPPORT)
        let error = #expect(throws: SystemError.self) { try descriptor.join(good) }
        #expect(error?.description.contains("239.255.7.6") == true)
        #expect(errno { try descriptor.setMulticastInterface(.init(999_999)) } == EADDRNOTAVAIL)
    }

    @Test func theZoneOfAGroupNamesItsInterface() throws {
        let descriptor = try DatagramDescriptor(opening: .ipv6)
        let lo = try InterfaceIndex("lo")
        let membership = MulticastMembership(of: try group("ff02::7:9%lo"))
        #expect(membership.interface == lo)
        #expect(MulticastMembership(of: try group("ff02::7:9%lo"), on: InterfaceIndex(77)).interface.number == 77)
        #expect(MulticastMembership(of: try group("ff02::7:9")).interface == .any)
        try descriptor.join(membership)
        try descriptor.leave(MulticastMembership(of: group("ff02::7:9"), on: lo))
    }

    @Test func anInterfaceHasANameAnAddressOrANumber() throws {
        let lo = InterfaceIndex(if_nametoindex("lo"))
        for text in ["lo", "127.0.0.1", "::1", "[::1]"] { #expect(try InterfaceIndex(text) == lo) }
        #expect(try InterfaceIndex("") == .any)
        for text in ["nowhere0", "192.0.2.77", "lo\0"] {
            #expect(throws: InterfaceError.self) { try InterfaceIndex(text) }
        }
    }

    // MARK: - Between two namespaces

    /// Cases that do not work on the loopback interface: IPv6 groups, a small MTU, an unresponsive host.
    @Test func twoNamespacesReachEachOther() async throws {
        let (status, text) = try await ProbeProcess.run(script: Self.script)
        #expect(status == 0, "\(text)")
    }

    /// The namespaces have 192.0.2.1 and 192.0.2.2, and 2001:db8::1 and 2001:db8::2, at the ends of a veth
    /// pair. `sleep` keeps the second one alive, and inherits blocked signals.
    private static let script = """
        unshare --net sleep 1200 >/dev/null 2>&1 &
        other=$!
        trap 'kill -KILL $other' EXIT
        for _ in $(seq 100000); do
            [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ] || break
        done
        inside() { nsenter --target $other --net "$@"; }
        ip link add veth1 type veth peer name veth2
        ip link set veth2 netns $other
        setup='
            ip link set lo up
            echo 0 > /proc/sys/net/ipv6/conf/veth$0/accept_dad
            ip address add 192.0.2.$0/24 dev veth$0
            ip address add 2001:db8::$0/64 dev veth$0 nodad
            ip link set veth$0 up
            ip route add 224.0.0.0/4 dev veth$0'
        sh -ec "$setup" 1
        inside sh -ec "$setup" 2
        "$0" datagrams /proc/$other/ns/net
        """
}

internal import AsyncSocketsTesting
internal import Foundation
internal import SocketCore
internal import SocketTestSupport

/// UDP between this network namespace, with 192.0.2.1 and 2001:db8::1 on `veth1`, and another one, with
/// 192.0.2.2 and 2001:db8::2 on `veth2`.
enum DatagramProbe {
    private typealias Parties = (own: DatagramParty, other: DatagramParty, otherInterface: InterfaceIndex)

    /// - Parameter otherNamespace: A file in /proc (namespaces(7)).
    static func run(otherNamespace: String) throws {
        for families in [DatagramDescriptor.Families.ipv4, .ipv6] {
            let isIPv4 = families == .ipv4
            let parties = try parties(otherNamespace, families)
            try anySource(parties, groups: isIPv4 ? ["239.255.1.1"] : ["ff05::1:1", "ff02::1:1%veth1"])
            try loopback(parties, group: isIPv4 ? "239.255.1.2" : "ff05::1:2")
            try oneSource(
                parties, group: isIPv4 ? "232.1.1.1" : "ff35::8000:1", own: isIPv4 ? "192.0.2.1" : "2001:db8::1",
                stranger: isIPv4 ? "192.0.2.99" : "2001:db8::99")
            let target = try parties.other.address(on: isIPv4 ? "192.0.2.2" : "2001:db8::2")
            try segments(parties, target, isIPv4)
            try tooLargeForThePath(parties, target)
        }
        try silentHost(try parties(otherNamespace, .ipv4))
        try reportOfASmallPath(try parties(otherNamespace, .ipv4))
        try UDPSocketProbe.run { body in try inside(otherNamespace, body) }
        print("the namespaces have exchanged datagrams")
    }

    /// A socket stays in the namespace in which it was created.
    private static func parties(_ otherNamespace: String, _ families: DatagramDescriptor.Families) throws -> Parties {
        let host = families == .ipv4 ? "0.0.0.0" : "::"
        let own = try DatagramParty(host, families: families)
        try own.descriptor.setMulticastInterface(InterfaceIndex("veth1"))
        return try inside(otherNamespace) {
            let interface = try InterfaceIndex(families == .ipv4 ? "192.0.2.2" : "veth2")
            return (own, try DatagramParty(host, families: families), interface)
        }
    }

    private static func inside<Result>(_ namespace: String, _ body: () throws -> Result) throws -> Result {
        // Not imported from Glibc.
        typealias Setns = @convention(c) (Int32, Int32) -> Int32
        guard let symbol = dlsym(nil, "setns") else { throw ProbeFailure(description: "there is no setns") }
        let setns = unsafeBitCast(symbol, to: Setns.self)
        let (here, there) = (open("/proc/self/ns/net", O_RDONLY), open(namespace, O_RDONLY))
        defer {
            close(here)
            close(there)
        }
        guard setns(there, 0) == 0 else { throw ProbeFailure(description: "setns: \(String(cString: strerror(errno)))") }
        defer { _ = setns(here, 0) }
        return try body()
    }

    private static func expect(_ condition: Bool, _ what: String) throws {
        guard condition else { throw ProbeFailure(description: what) }
    }

    /// Sends to the other party's own address. This must be the next datagram that it receives.
    private static func expectNothing(_ parties: Parties, _ what: String) throws {
        let target = try parties.other.address(on: parties.own.descriptor.families == .ipv4 ? "192.0.2.2" : "2001:db8::2")
        parties.own.send([Array(what.utf8)], to: target)
        let taken = try parties.other.take(1)
        try expect(taken.map(\.bytes) == [Array(what.utf8)], "\(what): \(taken)")
    }

    // MARK: - Multicast

    private static func anySource(_ parties: Parties, groups: [String]) throws {
        let (own, other, interface) = parties
        for host in groups {
            let group = try other.address(on: host)
            let membership = MulticastMembership(of: group, on: interface)
            own.send([[0]], to: group)
            try expectNothing(parties, "not joined yet")
            try other.descriptor.join(membership)
            let report = own.send([[1], [], [2]], to: group)
            try expect(report.isComplete(3), "\(host): \(report)")
            let taken = try other.take(3)
            try expect(taken.map(\.bytes) == [[1], [], [2]], "\(host): \(taken)")
            try expect(taken[0].arrival.interfaceIndex == interface.number, "\(taken[0])")
            // The scope is the interface index there.
            let isGroup = taken[0].arrival.localAddress?.data.prefix(24) == group.data.prefix(24)
            try expect(isGroup, "\(host): \(taken[0].arrival)")
            try expect(
                other.send([[3]], to: taken[0].sender, from: taken[0].arrival.replySource).isComplete(1), "no reply to \(host)")
            try expect(try own.take(1).map(\.bytes) == [[3]], "another reply to \(host)")
            try withoutHops(parties, group)
            try other.descriptor.leave(membership)
            own.send([[0]], to: group)
            try expectNothing(parties, "left")
        }
    }

    private static func withoutHops(_ parties: Parties, _ group: SocketEndpoint) throws {
        let membership = MulticastMembership(of: group, on: try InterfaceIndex("veth1"))
        try parties.own.descriptor.join(membership)
        try parties.own.descriptor.set(.multicastTTL, to: 0)
        parties.own.send([[0]], to: group)
        try expectNothing(parties, "a hop too far")
        try parties.own.descriptor.set(.multicastTTL, to: 1)
        try parties.own.descriptor.leave(membership)
    }

    private static func loopback(_ parties: Parties, group: String) throws {
        let own = parties.own
        let group = try own.address(on: group)
        try own.descriptor.join(MulticastMembership(of: group, on: InterfaceIndex("veth1")))
        own.send([[1]], to: group)
        try expect(try own.take(1).map(\.bytes) == [[1]], "the sender has joined the group, and does not hear")
        try own.descriptor.set(.multicastLoopback, to: false)
        own.send([[2]], to: group)
        try own.descriptor.set(.multicastLoopback, to: true)
        own.send([[3]], to: group)
        try expect(try own.take(1).map(\.bytes) == [[3]], "the sender hears itself without loopback")
    }

    private static func oneSource(_ parties: Parties, group: String, own: String, stranger: String) throws {
        let group = try parties.other.address(on: group)
        func membership(_ source: String) throws -> MulticastMembership {
            MulticastMembership(of: group, from: try .loopback(source), on: parties.otherInterface)
        }
        try parties.other.descriptor.join(membership(stranger))
        parties.own.send([[0]], to: group)
        try expectNothing(parties, "of another source")
        try parties.other.descriptor.join(membership(own))
        let report = parties.own.send([[1]], to: group, from: DatagramSource(address: InternetAddress(try .loopback(own))))
        try expect(report.isComplete(1), "\(report)")
        let taken = try parties.other.take(1)
        try expect(taken.map(\.bytes) == [[1]] && taken.map(\.sender.host) == [own], "\(taken)")
        try parties.other.descriptor.leave(membership(own))
        parties.own.send([[0]], to: group)
        try expectNothing(parties, "of a source that was left")
    }

    // MARK: - Sizes

    /// A run of datagrams that exceed the link's MTU is sent in fragments, without segmentation offload.
    private static func segments(_ parties: Parties, _ target: SocketEndpoint, _ isIPv4: Bool) throws {
        let hasHelp = parties.own.sender.largestSegment > 0
        for (size, largest) in [(1200, 65_535), (2000, 1999), (1500, 1499), (1400, 1499)] {
            let payloads = (0..<10).map { [UInt8](repeating: UInt8($0), count: size) }
            let report = parties.own.send(payloads, to: target)
            try expect(report.isComplete(10), "\(size): \(report)")
            let taken = try parties.other.take(10)
            try expect(taken.map(\.bytes) == payloads.map { Array($0.prefix(2048)) }, "\(size): \(taken.map(\.bytes.count))")
            try expect(
                parties.own.sender.largestSegment == (hasHelp ? largest : 0), "\(size): \(parties.own.sender.largestSegment)")
        }
    }

    private static func tooLargeForThePath(_ parties: Parties, _ target: SocketEndpoint) throws {
        let (own, other, _) = parties
        try own.descriptor.set(.pathMTUDiscovery, to: .always)
        let fitting = 1500 - (own.descriptor.families == .ipv4 ? 28 : 48)
        let sizes = [fitting, fitting + 1, 1]
        let report = own.send(sizes.map { [UInt8](repeating: 7, count: $0) }, to: target)
        try expect(report.handledCount == 3 && report.failures.map(\.position) == [1], "\(report)")
        try expect(report.failures[0].error.errno == EMSGSIZE, "\(report)")
        try expect(try other.take(2).map(\.bytes.count) == [fitting, 1], "other sizes")
        let (errors, isDrained) = own.descriptor.takeErrors()
        try expect(isDrained && !own.hasErrors, "\(errors)")
        try expect(errors.allSatisfy { $0.origin == .local && $0.errno == EMSGSIZE && $0.pathMTU == 1500 }, "\(errors)")
        try expect(!errors.isEmpty, "the kernel has told no path MTU")
        try own.descriptor.set(.pathMTUDiscovery, to: .fragmenting)
    }

    /// A genuine or forged router report says that an earlier datagram was too large for the path. The
    /// following small datagrams are still sent.
    private static func reportOfASmallPath(_ parties: Parties) throws {
        let (own, other, _) = parties
        let target = try other.address(on: "192.0.2.2")
        let largest = own.sender.largestSegment
        for payloads in [[[1]], [[2, 2], [3, 3]]] as [[[UInt8]]] {
            try forgeReport(to: own)
            try own.waitForErrors()
            let report = own.send(payloads, to: target)
            try expect(report.isComplete(payloads.count), "\(report)")
            try expect(report.earlierErrors.map(\.errno) == [EMSGSIZE], "\(report)")
            try expect(try other.take(payloads.count).map(\.bytes) == payloads, "other datagrams")
            try expect(own.sender.largestSegment == largest, "\(own.sender.largestSegment)")
            let (errors, isDrained) = own.descriptor.takeErrors()
            try expect(isDrained && errors.map(\.errno) == [EMSGSIZE], "\(errors)")
            try expect(errors.first?.origin == .network(type: 3, code: 4) && errors.first?.pathMTU == 1400, "\(errors)")
        }
    }

    /// ICMP: a datagram to 192.0.2.50 must be fragmented to 1,400 bytes (RFC 1191, section 4).
    private static func forgeReport(to party: DatagramParty) throws {
        let port = try party.address.port ?? 0
        let (own, target): ([UInt8], [UInt8]) = ([192, 0, 2, 1], [192, 0, 2, 50])
        let datagram: [UInt8] = [UInt8(port >> 8), UInt8(port & 0xff), 0, 9, 0, 8, 0, 0]
        let packet: [UInt8] = [0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0] + own + target + datagram
        var report: [UInt8] = [3, 4, 0, 0, 0, 0, UInt8(1400 >> 8), UInt8(1400 & 0xff)] + packet
        var sum = stride(from: 0, to: report.count, by: 2).reduce(0) { $0 + UInt32(report[$1]) << 8 + UInt32(report[$1 + 1]) }
        while sum > 0xffff { sum = sum >> 16 + sum & 0xffff }
        (report[2], report[3]) = (UInt8(~sum >> 8 & 0xff), UInt8(~sum & 0xff))
        let raw = socket(AF_INET, Int32(SOCK_RAW.rawValue), Int32(IPPROTO_ICMP))
        guard raw >= 0 else { throw ProbeFailure(description: "a raw socket was refused") }
        defer { close(raw) }
        let sent = try party.address(on: "192.0.2.1").data.withUnsafeBytes { address in
            sendto(
                raw, report, report.count, 0, address.baseAddress?.assumingMemoryBound(to: sockaddr.self),
                socklen_t(address.count))
        }
        try expect(sent == report.count, "the report was not sent")
    }

    // MARK: - An unresponsive host

    /// Datagrams wait for its link-layer address until the socket's buffer is full. Then each of them fails.
    private static func silentHost(_ parties: Parties) throws {
        let (own, other, _) = parties
        try own.descriptor.set(.sendBufferSize, to: 1)
        let silent = try SocketEndpoint.loopback("192.0.2.77", port: 9)
        let report = own.send([[UInt8]](repeating: [1], count: 500), to: silent)
        try expect(report.rest == .wouldBlock && (1..<500).contains(report.handledCount), "\(report)")
        try expect(report.failures.isEmpty, "\(report)")
        try own.waitForErrors()
        let (errors, _) = own.descriptor.takeErrors()
        try expect(!errors.isEmpty, "an event without errors")
        try expect(errors.allSatisfy { $0.errno == EHOSTUNREACH && $0.destination == silent }, "\(errors)")
        try expect(own.send([[2]], to: try other.address(on: "192.0.2.2")).isComplete(1), "a later datagram was not sent")
        try expect(try other.take(1).map(\.bytes) == [[2]], "another datagram")
    }
}

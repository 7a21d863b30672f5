internal import CLinux
internal import Glibc

/// Metadata about a received datagram: its destination, interface, size, ECN mark and arrival time.
public struct DatagramArrival: Sendable, Hashable {
    /// The ECN field of the IP header, with which a router signals congestion instead of dropping the packet
    /// (RFC 3168, section 5).
    public enum ECN: UInt8, Sendable, Hashable {
        /// Not-ECT: the sender does not support ECN, so routers drop its packets when congested.
        case notECT = 0
        /// ECT(1): the sender supports ECN. Used mostly by L4S (RFC 9331).
        case ect1 = 1
        /// ECT(0): the sender supports ECN.
        case ect0 = 2
        /// CE: a router on the path was congested.
        case ce = 3
    }

    /// The destination address of the datagram, with the local port. It is an address of this machine, a
    /// multicast group or a broadcast address. `nil` if the kernel did not report it.
    public var localAddress: SocketEndpoint? { local?.socketAddress }
    package let local: InternetAddress?
    /// The kernel's index of the interface on which the datagram arrived, or 0 if the kernel did not report
    /// it.
    public let interfaceIndex: UInt32
    /// The size of the datagram on the network in bytes, including any bytes lost to truncation.
    public let fullSize: Int
    /// Whether the datagram was larger than the receive buffer, so its last bytes were lost.
    public let isTruncated: Bool
    /// The datagram's ECN field.
    public let ecn: ECN
    /// When the kernel received the datagram, by the system clock: the time since 1970, without leap
    /// seconds. `nil` unless timestamps were requested.
    public let timeSince1970: Duration?
    /// The source to use for a reply, so that the reply is sent from the address to which the peer sent its
    /// datagram. For a multicast or broadcast datagram, the kernel chooses an address for the arrival
    /// interface. If `nil`, the kernel chooses the source.
    package let replySource: DatagramSource?

    /// The name of the arrival interface, such as `eth0`. `nil` if the interface no longer exists or the
    /// kernel did not report it.
    public var interfaceName: String? {
        var name = [CChar](repeating: 0, count: Int(IF_NAMESIZE))
        guard interfaceIndex != 0, if_indextoname(interfaceIndex, &name) != nil else { return nil }
        return String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    init(_ facts: ArrivalFacts, fullSize: Int, isTruncated: Bool) {
        local = facts.localAddress
        interfaceIndex = facts.interfaceIndex
        self.fullSize = fullSize
        self.isTruncated = isTruncated
        ecn = facts.ecn
        timeSince1970 = facts.timeSince1970
        replySource = facts.replySource
    }
}

/// Metadata from the control messages of one received message.
struct ArrivalFacts {
    private(set) var localAddress: InternetAddress?
    private(set) var interfaceIndex: UInt32 = 0
    private(set) var ecn = DatagramArrival.ECN.notECT
    private(set) var timeSince1970: Duration?
    private(set) var replySource: DatagramSource?
    /// The kernel's count of dropped datagrams when this datagram arrived. The kernel omits a count of zero.
    private(set) var droppedCount: UInt32?
    /// The size of each datagram except the last, if the message contains several datagrams.
    private(set) var segmentSize: Int?

    init() {}

    init(_ control: UnsafeRawBufferPointer, port: UInt16) {
        var reader = ControlMessageReader(control)
        while let message = reader.next() {
            switch (message.level, message.type) {
            case (CInt(IPPROTO_IP), IP_PKTINFO): readIPv4(message, port)
            case (CInt(IPPROTO_IPV6), IPV6_PKTINFO): readIPv6(message, port)
            case (CInt(IPPROTO_IP), IP_TOS): readTrafficClass(message.value(as: UInt8.self))
            case (CInt(IPPROTO_IPV6), IPV6_TCLASS):
                readTrafficClass(message.value().map { UInt8(truncatingIfNeeded: $0 as CInt) })
            case (SOL_SOCKET, SO_TIMESTAMPNS): readTime(message)
            case (SOL_SOCKET, SO_RXQ_OVFL): droppedCount = message.value()
            case (CInt(SOL_UDP), UDP_GRO): segmentSize = message.value().map { Int($0 as CInt) }
            default: break
            }
        }
    }

    /// Reads the interface, the source address for replies, and the destination.
    ///
    /// A dual-stack socket receives this message in addition to the IPv6 one. The IPv6 message gives the
    /// destination in the same form as the sender address, but not the source address for replies.
    private mutating func readIPv4(_ message: ControlMessageReader.Message, _ port: UInt16) {
        guard let index: UInt32 = message.value(), let source: in_addr = message.value(at: 4),
            let destination: in_addr = message.value(at: 8)
        else { return }
        interfaceIndex = index
        if localAddress == nil { localAddress = InternetAddress(destination, port: port) }
        // The reply source has no interface because the return route may use a different one.
        replySource = source.s_addr == 0 ? nil : DatagramSource(address: InternetAddress(source, port: 0))
    }

    private mutating func readIPv6(_ message: ControlMessageReader.Message, _ port: UInt16) {
        guard let index: UInt32 = message.value(at: 16) else { return }
        let destination = UnsafeRawBufferPointer(rebasing: message.data[..<16])
        let kind = IPv6Kind(destination)
        interfaceIndex = index
        localAddress = InternetAddress(ipv6: destination, port, scope: kind.needsScope ? index : 0)
        guard replySource == nil else { return }
        switch kind {
        case .mapped: break
        case .multicast, .linkMulticast: replySource = DatagramSource(address: nil, interfaceIndex: index)
        case .linkLocal: replySource = DatagramSource(address: localAddress, interfaceIndex: index)
        case .other: replySource = DatagramSource(address: localAddress)
        }
    }

    private mutating func readTrafficClass(_ byte: UInt8?) {
        if let byte, let mark = DatagramArrival.ECN(rawValue: byte & 3) { ecn = mark }
    }

    private mutating func readTime(_ message: ControlMessageReader.Message) {
        guard let time: timespec = message.value() else { return }
        timeSince1970 = .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}

private enum IPv6Kind {
    case mapped
    case multicast
    /// A group with interface-local or link-local scope (RFC 4291, section 2.7).
    case linkMulticast
    case linkLocal
    case other

    /// - Parameter bytes: The 16 bytes of the address.
    init(_ bytes: UnsafeRawBufferPointer) {
        switch (bytes[0], bytes[1]) {
        case (0xff, let second): self = [1, 2].contains(second & 0x0f) ? .linkMulticast : .multicast
        case (0xfe, 0x80...0xbf): self = .linkLocal
        default: self = bytes.starts(with: AddressPrefix.mappedBeginning) ? .mapped : .other
        }
    }

    /// Whether the address identifies a host or group only in combination with an interface (RFC 4007,
    /// section 6).
    var needsScope: Bool {
        switch self {
        case .linkMulticast, .linkLocal: true
        case .mapped, .multicast, .other: false
        }
    }
}

extension InternetAddress {
    /// - Parameter host: The 16 bytes of the address.
    fileprivate init?(ipv6 host: UnsafeRawBufferPointer, _ port: UInt16, scope: UInt32) {
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = port.bigEndian
        address.sin6_scope_id = scope
        withUnsafeMutableBytes(of: &address.sin6_addr) { $0.copyMemory(from: host) }
        guard let made = withUnsafeBytes(of: address, { InternetAddress($0) }) else { return nil }
        self = made
    }
}

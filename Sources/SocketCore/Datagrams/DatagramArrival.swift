internal import CLinux
internal import Glibc

/// How a datagram arrived: where, when, and in which condition.
public struct DatagramArrival: Sendable, Hashable {
    /// The mark that a router puts on a packet in place of dropping it (ECN; RFC 3168, section 5).
    public enum Congestion: UInt8, Sendable, Hashable {
        /// The sender does not take part: routers drop its packets.
        case notCapable = 0
        /// `ECT(1)`: the sender takes part, mostly in L4S (RFC 9331).
        case capable1 = 1
        /// `ECT(0)`: the sender takes part.
        case capable0 = 2
        /// `CE`: a queue on the way was filling.
        case experienced = 3
    }

    /// The address that the datagram was sent to, with the local port: one of this machine's, or a multicast
    /// group or broadcast address. Nil when the kernel does not tell.
    public var localAddress: SocketAddress? { local?.socketAddress }
    package let local: InternetAddress?
    /// The kernel's number of the interface that it came in by; 0 when the kernel does not tell.
    public let interfaceIndex: UInt32
    /// The bytes that it had on the network.
    public let fullSize: Int
    /// Whether the end of it did not fit the receive buffer, and is lost.
    public let isTruncated: Bool
    /// The mark that routers have put on it.
    public let congestion: Congestion
    /// When the kernel got it, on the system's clock: the time since 1970, without leap seconds. Nil unless
    /// time stamps were asked for.
    public let timeSince1970: Duration?
    /// From where a reply leaves, so that it comes from the address that its receiver has sent to. To a
    /// multicast or broadcast datagram the kernel's choice for that interface replies. Nil: the kernel
    /// chooses.
    package let replySource: DatagramSource?

    /// The name of the interface, such as `eth0`; nil when it is gone, or was not told.
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
        congestion = facts.congestion
        timeSince1970 = facts.timeSince1970
        replySource = facts.replySource
    }
}

/// The facts in the control messages of one received message.
struct ArrivalFacts {
    private(set) var localAddress: InternetAddress?
    private(set) var interfaceIndex: UInt32 = 0
    private(set) var congestion = DatagramArrival.Congestion.notCapable
    private(set) var timeSince1970: Duration?
    private(set) var replySource: DatagramSource?
    /// The kernel's count of dropped datagrams when this one arrived; the kernel leaves out zero.
    private(set) var droppedCount: UInt32?
    /// The size of each datagram but the last, when the message holds several.
    private(set) var segmentSize: Int?

    init() {}

    /// - Parameter port: The local port.
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

    /// The interface, the address that replies leave from, and the destination in the header.
    ///
    /// A socket that has both versions of IP gets this beside the message of IPv6, which has the destination
    /// in the same form as the sender, but not the address for replies.
    private mutating func readIPv4(_ message: ControlMessageReader.Message, _ port: UInt16) {
        guard let index: UInt32 = message.value(), let source: in_addr = message.value(at: 4),
            let destination: in_addr = message.value(at: 8)
        else { return }
        interfaceIndex = index
        if localAddress == nil { localAddress = InternetAddress(destination, port: port) }
        // The route back may take another interface.
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
        if let byte, let mark = DatagramArrival.Congestion(rawValue: byte & 3) { congestion = mark }
    }

    private mutating func readTime(_ message: ControlMessageReader.Message) {
        guard let time: timespec = message.value() else { return }
        timeSince1970 = .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}

private enum IPv6Kind {
    case mapped
    case multicast
    /// A group of this link or machine (RFC 4291, section 2.7).
    case linkMulticast
    case linkLocal
    case other

    /// - Parameter bytes: 16 of them.
    init(_ bytes: UnsafeRawBufferPointer) {
        switch (bytes[0], bytes[1]) {
        case (0xff, let second): self = [1, 2].contains(second & 0x0f) ? .linkMulticast : .multicast
        case (0xfe, 0x80...0xbf): self = .linkLocal
        default: self = bytes.starts(with: AddressPrefix.mappedBeginning) ? .mapped : .other
        }
    }

    /// True for an address that names a host or group only together with an interface (RFC 4007, section 6).
    var needsScope: Bool {
        switch self {
        case .linkMulticast, .linkLocal: true
        case .mapped, .multicast, .other: false
        }
    }
}

extension InternetAddress {
    /// - Parameter host: 16 bytes.
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

internal import CLinux
internal import Glibc

// The control messages of a datagram (cmsg(3)): a header with length, level and type, then the data, then
// bytes that align the next header.

/// Reads control messages one after the other. It trusts no length.
struct ControlMessageReader {
    private var rest: UnsafeRawBufferPointer

    struct Message {
        let level: CInt
        let type: CInt
        let data: UnsafeRawBufferPointer

        /// The value at an offset of the data; nil when the data is shorter.
        func value<Value: BitwiseCopyable>(at offset: Int = 0, as type: Value.Type = Value.self) -> Value? {
            guard data.count >= offset + MemoryLayout<Value>.size else { return nil }
            return data.loadUnaligned(fromByteOffset: offset, as: type)
        }
    }

    init(_ bytes: UnsafeRawBufferPointer) {
        rest = bytes
    }

    mutating func next() -> Message? {
        let headerSize = MemoryLayout<cmsghdr>.size
        guard rest.count >= headerSize else { return nil }
        let header = rest.loadUnaligned(as: cmsghdr.self)
        let length = Int(header.cmsg_len)
        guard length >= headerSize, length <= rest.count else { return nil }
        let data = UnsafeRawBufferPointer(rebasing: rest[headerSize..<length])
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(ControlMessageWriter.aligned(length)))
        return Message(level: header.cmsg_level, type: header.cmsg_type, data: data)
    }
}

/// Writes control messages one after the other.
struct ControlMessageWriter {
    private let room: UnsafeMutableRawBufferPointer
    /// The bytes written.
    private(set) var count = 0

    init(_ room: UnsafeMutableRawBufferPointer) {
        self.room = room
    }

    static func aligned(_ length: Int) -> Int {
        let step = MemoryLayout<Int>.alignment
        return (length + step - 1) & ~(step - 1)
    }

    /// The room that data of `size` bytes takes (`CMSG_SPACE`).
    static func space(for size: Int) -> Int {
        MemoryLayout<cmsghdr>.size + aligned(size)
    }

    /// Appends a message with `size` zero bytes and returns them; nil when they do not fit.
    mutating func append(_ level: CInt, _ type: CInt, size: Int) -> UnsafeMutableRawBufferPointer? {
        let space = Self.space(for: size)
        guard room.count - count >= space else { return nil }
        let message = UnsafeMutableRawBufferPointer(rebasing: room[count..<count + space])
        message.initializeMemory(as: UInt8.self, repeating: 0)
        var header = cmsghdr()
        header.cmsg_len = MemoryLayout<cmsghdr>.size + size
        header.cmsg_level = level
        header.cmsg_type = type
        message.storeBytes(of: header, as: cmsghdr.self)
        count += space
        return UnsafeMutableRawBufferPointer(rebasing: message[MemoryLayout<cmsghdr>.size...])
    }
}

// MARK: - Where a datagram leaves from

/// The local address and the interface from which a datagram leaves, such as the reply to one that came
/// there.
package struct DatagramSource: Hashable, Sendable {
    /// Nil: the kernel chooses.
    package let address: InternetAddress?
    /// 0: the kernel chooses.
    package let interfaceIndex: UInt32

    package init(address: InternetAddress?, interfaceIndex: UInt32 = 0) {
        self.address = address
        self.interfaceIndex = interfaceIndex
    }

    /// The room that `write(to:on:)` takes: an `in6_pktinfo` is larger than an `in_pktinfo`.
    static var space: Int { ControlMessageWriter.space(for: ipv6Size) }

    // `struct in_pktinfo` has the interface, `ipi_spec_dst` and `ipi_addr`; `struct in6_pktinfo` the address
    // and the interface (ip(7), ipv6(7)).
    private static var ipv4Size: Int { 12 }
    private static var ipv6Size: Int { 20 }

    /// A socket that has both versions of IP takes an IPv4 address in the form of IPv6.
    func write(to writer: inout ControlMessageWriter, on families: DatagramDescriptor.Families) {
        if families == .ipv4 {
            guard let data = writer.append(CInt(IPPROTO_IP), IP_PKTINFO, size: Self.ipv4Size) else { return }
            data.storeBytes(of: interfaceIndex, as: UInt32.self)
            address?.withHostBytes { if $0.count == 4 { data[4..<8].copyBytes(from: $0) } }
        } else {
            guard let data = writer.append(CInt(IPPROTO_IPV6), IPV6_PKTINFO, size: Self.ipv6Size) else { return }
            address?.withHostBytes { host in
                if host.count == 4 { data[0..<12].copyBytes(from: AddressPrefix.mappedBeginning) }
                data[16 - host.count..<16].copyBytes(from: host)
            }
            data.storeBytes(of: interfaceIndex, toByteOffset: 16, as: UInt32.self)
        }
    }
}

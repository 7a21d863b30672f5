internal import CLinux
internal import Glibc

// Control messages (cmsg(3)) consist of a header with length, level and type, followed by the data and
// padding that aligns the next header.

/// Parses control messages in order, checking every length.
struct ControlMessageReader {
    private var rest: UnsafeRawBufferPointer

    struct Message {
        let level: CInt
        let type: CInt
        let data: UnsafeRawBufferPointer

        /// Returns the value at an offset in the data, or `nil` if the data is too short.
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

struct ControlMessageWriter {
    private let room: UnsafeMutableRawBufferPointer
    private(set) var count = 0

    init(_ room: UnsafeMutableRawBufferPointer) {
        self.room = room
    }

    static func aligned(_ length: Int) -> Int {
        let step = MemoryLayout<Int>.alignment
        return (length + step - 1) & ~(step - 1)
    }

    /// The space that `size` bytes of data occupy, including the header and padding (`CMSG_SPACE`).
    static func space(for size: Int) -> Int {
        MemoryLayout<cmsghdr>.size + aligned(size)
    }

    /// Appends a message with `size` zero bytes and returns those bytes, or `nil` if the message does not
    /// fit.
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

// MARK: - Source of an outgoing datagram

/// The local address and interface used to send a datagram. A reply, for example, is sent from the address
/// at which the request arrived.
package struct DatagramSource: Hashable, Sendable {
    /// `nil` lets the kernel choose.
    package let address: InternetAddress?
    /// 0 lets the kernel choose.
    package let interfaceIndex: UInt32

    package init(address: InternetAddress?, interfaceIndex: UInt32 = 0) {
        self.address = address
        self.interfaceIndex = interfaceIndex
    }

    /// The space that `write(to:on:)` needs. It covers `in6_pktinfo`, which is larger than `in_pktinfo`.
    static var space: Int { ControlMessageWriter.space(for: ipv6Size) }

    // `struct in_pktinfo` contains the interface, `ipi_spec_dst` and `ipi_addr`. `struct in6_pktinfo`
    // contains the address and the interface (ip(7), ipv6(7)).
    private static var ipv4Size: Int { 12 }
    private static var ipv6Size: Int { 20 }

    /// Writes the packet information. A dual-stack socket takes an IPv4 address in IPv4-mapped form.
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

internal import Glibc

/// An address of IP with a port, without references: a copy is a copy of 32 bytes.
///
/// A `SocketAddress` may have the path of a Unix-domain socket, whose references each copy counts. The way of
/// a datagram copies its addresses some twenty times.
package struct InternetAddress: Hashable, Sendable {
    // Numbers: other modules do not see the types of C, and would copy what has them by functions that they
    // look up at run time.
    private let head: AddressHead
    /// 0: not an address of IP.
    private let length: UInt32

    /// An address of another family is replaced by one that the kernel refuses.
    package init(_ address: SocketAddress) {
        let isWhole = address.family.isInternet && address.length <= AddressHead.size
        (head, length) = isWhole ? (address.head, address.length) : (AddressHead(), 0)
    }

    /// A `sockaddr_in` or `sockaddr_in6` of the kernel; nil for anything else.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard let head = AddressHead(internet: bytes) else { return nil }
        (self.head, length) = (head, UInt32(truncatingIfNeeded: bytes.count))
    }

    init(_ host: in_addr, port: UInt16) {
        head = AddressHead(host, port)
        length = UInt32(MemoryLayout<sockaddr_in>.size)
    }

    package var socketAddress: SocketAddress { SocketAddress(head, length) }

    package var isIPv6: Bool { head.family == AF_INET6 }
    package var isIPv4: Bool { head.family == AF_INET }
    package var port: UInt16 { head.port }

    /// Calls `body` with the 4 bytes of an IPv4 address or the 16 of an IPv6 address.
    func withHostBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        head.withBytes { bytes in body(UnsafeRawBufferPointer(rebasing: isIPv4 ? bytes[4..<8] : bytes[8..<24])) }
    }

    /// The same host.
    package func hasHost(of other: InternetAddress) -> Bool { head.hasHost(of: other.head) }

    /// Copies it to `room`, which has space for a `sockaddr_in6`.
    ///
    /// - Returns: Its length.
    func copy(to room: UnsafeMutableRawPointer) -> UInt32 {
        head.copy(to: room)
        return length
    }
}

/// The bytes of a `sockaddr_in6`, or the first ones of another `sockaddr`, as numbers.
struct AddressHead: Hashable, Sendable {
    private var words: (UInt64, UInt64, UInt64, UInt32) = (0, 0, 0, 0)

    init() {}

    /// A whole `sockaddr_in` or `sockaddr_in6`; nil for anything else.
    init?(internet bytes: UnsafeRawBufferPointer) {
        switch bytes.count {
        case MemoryLayout<sockaddr_in>.size:
            words.0 = bytes.loadUnaligned(as: UInt64.self)
            words.1 = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            guard family == AF_INET else { return nil }
        case MemoryLayout<sockaddr_in6>.size:
            words = bytes.loadUnaligned(as: (UInt64, UInt64, UInt64, UInt32).self)
            guard family == AF_INET6 else { return nil }
        default: return nil
        }
    }

    init(_ host: in_addr, _ port: UInt16) {
        let beginning = UInt64(UInt16(AF_INET)) | UInt64(port.bigEndian) << 16
        words.0 = (beginning | UInt64(host.s_addr) << 32).littleEndian
    }

    static var size: Int { MemoryLayout<sockaddr_in6>.size }

    /// The first field of each `sockaddr`.
    var family: CInt { CInt(UInt16(truncatingIfNeeded: words.0.littleEndian)) }

    /// The second field of a `sockaddr_in` and a `sockaddr_in6`.
    var port: UInt16 { UInt16(bigEndian: UInt16(truncatingIfNeeded: words.0.littleEndian >> 16)) }

    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        withUnsafeBytes(of: words, body)
    }

    mutating func withMutableBytes<Result>(_ body: (UnsafeMutableRawBufferPointer) -> Result) -> Result {
        withUnsafeMutableBytes(of: &words, body)
    }

    func copy(to room: UnsafeMutableRawPointer) {
        room.storeBytes(of: words, as: (UInt64, UInt64, UInt64, UInt32).self)
    }

    func hasHost(of other: AddressHead) -> Bool {
        guard family == other.family else { return false }
        if family == AF_INET { return words.0 >> 32 == other.words.0 >> 32 }
        return words.1 == other.words.1 && words.2 == other.words.2 && words.3 == other.words.3
    }

    static func == (left: AddressHead, right: AddressHead) -> Bool { left.words == right.words }

    func hash(into hasher: inout Hasher) {
        hasher.combine(words.0)
        // An IPv4 address has no more.
        guard family != AF_INET else { return }
        hasher.combine(words.1)
        hasher.combine(words.2)
        hasher.combine(words.3)
    }
}

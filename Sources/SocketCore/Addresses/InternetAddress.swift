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

internal import Glibc

/// An IP address with a port, in 32 bytes without references.
///
/// `SocketEndpoint` can hold the path of a Unix-domain socket, so each copy updates a reference count. The
/// addresses of a datagram are copied about twenty times while it is sent or received.
package struct InternetAddress: Hashable, Sendable {
    // Stored as integers, not C structs. Other modules cannot see the C types, so copying a value that
    // contains C structs would require calls to functions that are looked up at run time.
    private let head: AddressHead
    /// Zero if this is not an IP address.
    private let length: UInt32

    /// Converts an IPv4 or IPv6 address. An address of any other family becomes an address that the kernel
    /// rejects.
    package init(_ address: SocketEndpoint) {
        let isWhole = address.family.isInternet && address.length <= AddressHead.size
        (head, length) = isWhole ? (address.head, address.length) : (AddressHead(), 0)
    }

    /// Reads a `sockaddr_in` or `sockaddr_in6` that the kernel wrote. Returns `nil` for anything else.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard let head = AddressHead(internet: bytes) else { return nil }
        (self.head, length) = (head, UInt32(truncatingIfNeeded: bytes.count))
    }

    init(_ host: in_addr, port: UInt16) {
        head = AddressHead(host, port)
        length = UInt32(MemoryLayout<sockaddr_in>.size)
    }

    package var socketAddress: SocketEndpoint { SocketEndpoint(head, length) }

    /// The IPv4 address inside an IPv4-mapped address. Any other address is returned unchanged.
    package var unmapped: InternetAddress {
        guard isIPv6, withHostBytes({ $0.starts(with: AddressPrefix.mappedBeginning) }) else { return self }
        return InternetAddress(socketAddress.unmapped)
    }

    package var isIPv6: Bool { head.family == AF_INET6 }
    package var isIPv4: Bool { head.family == AF_INET }
    package var port: UInt16 { head.port }

    /// Calls `body` with the 4 bytes of an IPv4 address or the 16 bytes of an IPv6 address.
    func withHostBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        head.withBytes { bytes in body(UnsafeRawBufferPointer(rebasing: isIPv4 ? bytes[4..<8] : bytes[8..<24])) }
    }

    /// Whether both addresses have the same host, regardless of the port.
    package func hasHost(of other: InternetAddress) -> Bool { head.hasHost(of: other.head) }

    /// Copies the address to `room`, which must have space for a `sockaddr_in6`.
    ///
    /// - Returns: The length of the address.
    func copy(to room: UnsafeMutableRawPointer) -> UInt32 {
        head.copy(to: room)
        return length
    }
}

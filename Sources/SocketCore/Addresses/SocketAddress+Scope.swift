internal import CLinux
internal import Glibc

// What interfaces and their addresses have to do with each other.
extension SocketAddress {
    /// An IPv6 address of `fe80::/10`, which means a host only together with an interface (RFC 4291, section
    /// 2.5.6).
    var isLinkLocal: Bool {
        guard let bytes = ipv6Bytes else { return false }
        return bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80
    }

    /// The same address; a link-local one without a scope gets `scope`.
    func withScope(ifMissing scope: UInt32) -> SocketAddress {
        guard isLinkLocal else { return self }
        var address = self
        withUnsafeMutableBytes(of: &address.storage) { bytes in
            guard bytes.load(fromByteOffset: Self.scopeOffset, as: UInt32.self) == 0 else { return }
            bytes.storeBytes(of: scope, toByteOffset: Self.scopeOffset, as: UInt32.self)
        }
        return address
    }

    /// True when both have the same bits of an IP address, port and scope apart.
    func isSameHost(as other: SocketAddress) -> Bool {
        switch (family, other.family) {
        case (.ipv4, .ipv4): ipv4Bytes == other.ipv4Bytes
        case (.ipv6, .ipv6): ipv6Bytes == other.ipv6Bytes
        default: false
        }
    }

    private var ipv4Bytes: [UInt8]? { family == .ipv4 ? bytes(from: Self.ipv4Offset, count: 4) : nil }
    private var ipv6Bytes: [UInt8]? { family == .ipv6 ? bytes(from: Self.ipv6Offset, count: 16) : nil }

    private func bytes(from offset: Int, count: Int) -> [UInt8] {
        withUnsafeBytes(of: storage) { Array($0[offset..<offset + count]) }
    }

    private static let ipv4Offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_addr) ?? 4
    private static let ipv6Offset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr) ?? 8
    private static let scopeOffset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_scope_id) ?? 24
}

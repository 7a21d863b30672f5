internal import CLinux
internal import Glibc

// The bytes of a host in network byte order, as used in protocols.
extension SocketEndpoint {
    /// The 4 bytes of an IPv4 address or the 16 bytes of an IPv6 address, without the zone. Empty for any
    /// other family.
    package var hostBytes: [UInt8] { withHostBytes { Array($0) } }

    /// Calls `body` with the bytes of `hostBytes`, without allocating an array.
    func withHostBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        head.withBytes { bytes in
            switch family {
            case .ipv4: body(UnsafeRawBufferPointer(rebasing: bytes[4..<8]))
            case .ipv6: body(UnsafeRawBufferPointer(rebasing: bytes[8..<24]))
            case .unix, .vsock: body(UnsafeRawBufferPointer(start: nil, count: 0))
            }
        }
    }

    /// The interface index (scope ID) of an IPv6 address that needs one, or 0.
    var scope: UInt32 {
        guard family == .ipv6 else { return 0 }
        return head.withBytes { $0.load(fromByteOffset: Self.scopeOffset, as: UInt32.self) }
    }

    /// Returns an IPv6 address with the given scope ID. Any other address is returned unchanged.
    func withScope(_ scope: UInt32) -> SocketEndpoint {
        guard family == .ipv6 else { return self }
        var address = self
        withUnsafeMutableBytes(of: &address.storage) {
            $0.storeBytes(of: scope, toByteOffset: Self.scopeOffset, as: UInt32.self)
        }
        return address
    }

    private static let scopeOffset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_scope_id) ?? 24

    /// The IPv4 address inside an IPv4-mapped IPv6 address (`::ffff:192.0.2.1`, RFC 4291, section 2.5.5.2),
    /// with the same port. Any other address is returned unchanged.
    package var unmapped: SocketEndpoint {
        guard isMapped else { return self }
        return SocketEndpoint(ipv4Bytes: Array(hostBytes.dropFirst(12)), port: port ?? 0) ?? self
    }

    /// Whether this is an IPv4-mapped IPv6 address.
    package var isMapped: Bool {
        family == .ipv6 && withHostBytes { $0.starts(with: AddressPrefix.mappedBeginning) }
    }

    /// Returns `nil` unless `bytes` has 4 elements.
    init?(ipv4Bytes bytes: [UInt8], port: UInt16) {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        guard bytes.count == MemoryLayout<in_addr>.size else { return nil }
        withUnsafeMutableBytes(of: &address.sin_addr) { $0.copyBytes(from: bytes) }
        guard let made = withUnsafeBytes(of: address, { SocketEndpoint($0) }) else { return nil }
        self = made
    }

    /// Returns `nil` unless `bytes` has 16 elements.
    init?(ipv6Bytes bytes: [UInt8], port: UInt16) {
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = port.bigEndian
        guard bytes.count == MemoryLayout<in6_addr>.size else { return nil }
        withUnsafeMutableBytes(of: &address.sin6_addr) { $0.copyBytes(from: bytes) }
        guard let made = withUnsafeBytes(of: address, { SocketEndpoint($0) }) else { return nil }
        self = made
    }
}

/// An address range in CIDR notation, such as `192.0.2.0/24` (RFC 4632, section 3.1; RFC 4291, section 2.3).
package struct AddressPrefix: Sendable, Hashable, CustomStringConvertible {
    private let bytes: [UInt8]
    private let bitCount: Int
    package let description: String

    /// Parses an address literal with an optional prefix length after a slash. Without a prefix length, the
    /// range contains only that address.
    ///
    /// Returns `nil` for any other text, for an address with a zone, or if any host bits are set, since
    /// `10.0.0.1/8` is probably a mistake.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let literal = parts.first, !literal.utf8.contains(UInt8(ascii: "%")),
            let address = SocketEndpoint(literal: String(literal), port: 0)
        else { return nil }
        bytes = address.hostBytes
        if parts.count == 1 {
            bitCount = bytes.count * 8
        } else {
            guard let bits = Self.number(parts[1]), bits <= bytes.count * 8 else { return nil }
            bitCount = bits
        }
        description = text
        guard Self.first(bitCount, of: bytes) == bytes else { return nil }
    }

    private static func number(_ text: Substring) -> Int? {
        guard (1...3).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(text)
    }

    /// Clears all bits after the first `bitCount`.
    private static func first(_ bitCount: Int, of bytes: [UInt8]) -> [UInt8] {
        bytes.enumerated().map { index, byte in
            let bits = min(max(bitCount - index * 8, 0), 8)
            return byte & ~UInt8(truncatingIfNeeded: 0xFF >> bits)
        }
    }

    /// Whether an address is in the range. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`, RFC 4291,
    /// section 2.5.5.2), as reported by an IPv6 socket that accepted an IPv4 connection, is treated as IPv4.
    package func contains(_ address: SocketEndpoint) -> Bool {
        var host = address.hostBytes
        if bytes.count == 4, host.count == 16, host.starts(with: Self.mappedBeginning) { host.removeFirst(12) }
        return host.count == bytes.count && Self.first(bitCount, of: host) == bytes
    }

    /// The first 12 bytes of an IPv4-mapped IPv6 address.
    static let mappedBeginning = [UInt8](repeating: 0, count: 10) + [0xFF, 0xFF]
}

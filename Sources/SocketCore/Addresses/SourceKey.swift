internal import SocketBuffers

/// How many leading bits of an address identify a source. Limits per source treat all addresses that share
/// these bits as one source.
public struct SourcePrefix: Sendable, Hashable {
    /// The number of leading bits of an IPv4 address. Defaults to 32, the whole address.
    public let ipv4Bits: Int
    /// The number of leading bits of an IPv6 address. Defaults to 64, the size of a typical network prefix.
    public let ipv6Bits: Int

    /// Creates a prefix.
    ///
    /// - Parameters:
    ///   - ipv4Bits: From 1 to 32; other values are clamped.
    ///   - ipv6Bits: From 1 to 64; other values are clamped. Subscribers usually receive a prefix of 48 to 64
    ///     bits (RFC 6177).
    public init(ipv4Bits: Int = 32, ipv6Bits: Int = 64) {
        (self.ipv4Bits, self.ipv6Bits) = (ipv4Bits.clamped(to: 1...32), ipv6Bits.clamped(to: 1...64))
    }
}

/// A source: the first bits of an IPv4 address, or of an IPv6 address and its scope.
package struct SourceKey: Hashable, Sendable {
    private let network: UInt64
    /// The scope of a link-local address, or `ofIPv4`.
    private let scope: UInt64

    private static let ofIPv4 = UInt64.max

    /// Hashing one value takes half the time of two. Sources of the same scope have different values.
    package func hash(into hasher: inout Hasher) { hasher.combine(network ^ scope) }

    /// All peers of other address families form one source.
    package init(_ address: SocketEndpoint, _ prefix: SourcePrefix = SourcePrefix()) {
        let (network, isIPv6) = address.withHostBytes { host in
            let isIPv6 = host.count == 16 && !host.starts(with: AddressPrefix.mappedBeginning)
            return ((isIPv6 ? host.prefix(8) : host.suffix(4)).reduce(0) { $0 << 8 | UInt64($1) }, isIPv6)
        }
        self.network = isIPv6 ? network & .max << UInt64(64 - prefix.ipv6Bits) : network & .max << UInt64(32 - prefix.ipv4Bits)
        scope = isIPv6 ? UInt64(address.scope) : Self.ofIPv4
    }

    /// Returns `nil` for a peer that is not on an IP network. Limits per source do not apply to it.
    package init?(limited address: SocketEndpoint, _ prefix: SourcePrefix = SourcePrefix()) {
        switch address.family {
        case .ipv4, .ipv6: self.init(address, prefix)
        default: return nil
        }
    }

    /// Returns the share of one source in a limit: four fifths, or the whole limit if it is below five.
    package static func share(of limit: Int) -> Int { limit - limit / 5 }
}

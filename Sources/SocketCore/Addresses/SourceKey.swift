/// A source: an IPv4 address, or the first 64 bits of an IPv6 address and its scope.
package struct SourceKey: Hashable, Sendable {
    private let network: UInt64
    /// The scope of a link-local address, or `ofIPv4`.
    private let scope: UInt64

    private static let ofIPv4 = UInt64.max

    /// Hashing one value takes half the time of two. Sources of the same scope have different values.
    package func hash(into hasher: inout Hasher) { hasher.combine(network ^ scope) }

    /// All peers of other address families form one source.
    package init(_ address: SocketEndpoint) {
        let (network, isIPv6) = address.withHostBytes { host in
            let isIPv6 = host.count == 16 && !host.starts(with: AddressPrefix.mappedBeginning)
            return ((isIPv6 ? host.prefix(8) : host.suffix(4)).reduce(0) { $0 << 8 | UInt64($1) }, isIPv6)
        }
        self.network = network
        scope = isIPv6 ? UInt64(address.scope) : Self.ofIPv4
    }

    /// Returns `nil` for a peer that is not on an IP network. Limits per source do not apply to it.
    package init?(limited address: SocketEndpoint) {
        switch address.family {
        case .ipv4, .ipv6: self.init(address)
        default: return nil
        }
    }

    /// Returns the share of one source in a limit: four fifths, or the whole limit if it is below five.
    package static func share(of limit: Int) -> Int { limit - limit / 5 }
}

/// Which versions of IP may be used.
package struct AddressFamilies: OptionSet, Hashable, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let ipv4 = AddressFamilies(rawValue: 1 << 0)
    package static let ipv6 = AddressFamilies(rawValue: 1 << 1)
    package static let both: AddressFamilies = [.ipv4, .ipv6]

    /// True when an address of `family` may be used; those of other families always may.
    package func allows(_ family: SocketAddress.Family) -> Bool {
        switch family {
        case .ipv4: contains(.ipv4)
        case .ipv6: contains(.ipv6)
        case .unix, .virtualMachine: true
        }
    }
}

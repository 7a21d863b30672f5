internal import SocketCore

/// The original's words about an interface that cannot be used.
enum InterfaceCheck {
    static let emptyHost = "Invalid host parameter (nil or \"\"). Should be a domain name or IP address string."
    static let unknown = "Unknown interface. Specify valid interface by name (e.g. \"en1\") or IP address."

    /// Nil when the interface has an address of a version of IP that is enabled; nil as its name means all of
    /// them.
    static func complaint(about name: String?, _ isIPv4Enabled: Bool, _ isIPv6Enabled: Bool) -> String? {
        guard let name, !name.isEmpty else { return nil }
        guard let interface = try? LocalInterface(name) else { return unknown }
        let families = Set(interface.addresses.map(\.family))
        if !isIPv4Enabled, !families.contains(.ipv6) {
            return "IPv4 has been disabled and specified interface doesn't support IPv6."
        }
        if !isIPv6Enabled, !families.contains(.ipv4) {
            return "IPv6 has been disabled and specified interface doesn't support IPv4."
        }
        return nil
    }
}

internal import SocketCore

/// CocoaAsyncSocket's messages for interfaces that cannot be used.
enum InterfaceCheck {
    static let emptyHost = "Invalid host parameter (nil or \"\"). Should be a domain name or IP address string."
    static let unknown = "Unknown interface. Specify valid interface by name (e.g. \"en1\") or IP address."

    /// Returns `nil` if the interface has an address of an enabled IP version. A `nil` or empty name means
    /// all interfaces.
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

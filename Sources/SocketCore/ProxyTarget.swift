/// Where a proxy shall connect to: checked, so that it can stand in a request as it is.
package enum ProxyTarget: Sendable, Hashable {
    /// A name that the proxy resolves: letters, digits, hyphens, underscores and dots, at most 255 bytes.
    case name(String, port: UInt16)
    /// An IPv4 or IPv6 address, of no zone.
    case address(SocketAddress)

    /// - Parameter host: A name or an address literal.
    package init(host: String, port: UInt16) throws(ProxyFailure) {
        if host.utf8.count <= Self.longestName, !host.utf8.contains(0), let address = SocketAddress(literal: host, port: port) {
            try self.init(address)
        } else {
            self = .name(try Self.checkedName(host), port: port)
        }
    }

    package init(_ address: SocketAddress) throws(ProxyFailure) {
        guard let host = address.host else { throw ProxyFailure(.invalid, "a proxy connects to no Unix-domain socket") }
        guard !host.utf8.contains(UInt8(ascii: "%")) else {
            throw ProxyFailure(.invalid, "the zone of \(host) means something on this machine only, and nothing to a proxy")
        }
        self = .address(address)
    }

    /// The longest domain name that a SOCKS request has room for (RFC 1928, section 5).
    private static let longestName = 255

    private static func checkedName(_ host: String) throws(ProxyFailure) -> String {
        guard (1...longestName).contains(host.utf8.count) else {
            throw ProxyFailure(.invalid, "a host name has 1 to \(longestName) bytes, and this one has \(host.utf8.count)")
        }
        guard host.utf8.allSatisfy(isAllowed) else {
            throw ProxyFailure(
                .invalid, "\(ProxyFailure.quote(host.utf8)) is no host name; write international names in ASCII (xn--)")
        }
        return host
    }

    /// No byte that means anything in a request line or a header field is among them.
    private static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"): true
        default: false
        }
    }
}

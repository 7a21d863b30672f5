/// The destination that a proxy connects to. The values are validated, so they can be used in a request
/// verbatim.
package enum ProxyTarget: Sendable, Hashable {
    /// A name that the proxy resolves. It has at most 255 bytes: letters, digits, hyphens, underscores and
    /// dots.
    case name(String, port: UInt16)
    /// An IPv4 or IPv6 address without a zone.
    case address(SocketEndpoint)

    /// - Parameter host: A name or an address, parsed by `HostText`.
    package init(host: String, port: UInt16) throws(ProxyFailure) {
        switch try HostText(ofProxy: host, port: port) {
        case .address(let address): try self.init(address)
        case .name(let name): self = .name(try Self.checkedName(name), port: port)
        }
    }

    package init(_ address: SocketEndpoint) throws(ProxyFailure) {
        guard let host = address.host else { throw ProxyFailure(.invalid, "a proxy cannot connect to a Unix-domain socket") }
        guard !host.utf8.contains(UInt8(ascii: "%")) else {
            throw ProxyFailure(.invalid, "the zone of \"\(host)\" is valid only on this machine: a proxy cannot use it")
        }
        self = .address(address)
    }

    private static func checkedName(_ host: String) throws(ProxyFailure) -> String {
        guard host.utf8.allSatisfy(isAllowed) else {
            throw ProxyFailure(
                .invalid, "\(ProxyFailure.quote(host.utf8)) is not a host name: write international names in ASCII (xn--)")
        }
        return host
    }

    /// Whether a byte is allowed in a name. The allowed bytes have no special meaning in a request line or
    /// header field.
    private static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"): true
        default: false
        }
    }
}

extension HostText {
    init(ofProxy text: String, port: UInt16) throws(ProxyFailure) {
        do throws(HostError) {
            try self.init(text, port: port)
        } catch {
            throw ProxyFailure(.invalid, error.message)
        }
    }
}

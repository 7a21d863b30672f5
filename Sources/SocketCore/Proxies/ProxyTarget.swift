/// The target that a proxy connects to, checked so that it can be put into a request as it is.
package enum ProxyTarget: Sendable, Hashable {
    /// A name that the proxy resolves: letters, digits, hyphens, underscores and dots, at most 255 bytes.
    case name(String, port: UInt16)
    /// An IPv4 or IPv6 address without a zone.
    case address(SocketAddress)

    /// - Parameter host: A name or an address, as `HostText` reads it.
    package init(host: String, port: UInt16) throws(ProxyFailure) {
        switch try HostText(ofProxy: host, port: port) {
        case .address(let address): try self.init(address)
        case .name(let name): self = .name(try Self.checkedName(name), port: port)
        }
    }

    package init(_ address: SocketAddress) throws(ProxyFailure) {
        guard let host = address.host else { throw ProxyFailure(.invalid, "a proxy cannot connect to a Unix-domain socket") }
        guard !host.utf8.contains(UInt8(ascii: "%")) else {
            throw ProxyFailure(.invalid, "the zone of \(host) has a meaning on this machine only: a proxy cannot use it")
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

    /// No such byte has a meaning in a request line or a header field.
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
    /// The host of a proxy, or of a proxy's target.
    init(ofProxy text: String, port: UInt16) throws(ProxyFailure) {
        do throws(HostError) {
            try self.init(text, port: port)
        } catch {
            throw ProxyFailure(.invalid, error.message)
        }
    }
}

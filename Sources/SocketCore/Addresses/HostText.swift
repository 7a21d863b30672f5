// Rules for host names and addresses, used for connecting, resolving, proxies, and the targets of proxies:
//  1. A host is 1 to 255 bytes long and contains no zero byte. C code would ignore everything after the
//     zero.
//  2. A host with a colon or a bracket must be an IPv6 address, with or without brackets.
//  3. A host whose last label is a number must be an IPv4 address in dotted decimal notation, even with a
//     trailing dot. The short forms and other bases of inet_aton(3) (`127.1`, `2130706433`, `0x7f.0.0.1`,
//     `0177.0.0.1`) are rejected, because a filter may interpret them differently from the code that
//     connects. This excludes no real name, because no top-level domain is a number (RFC 3696, section 2).
//  4. Everything else is a name. Only the resolver can determine whether the host exists.

package enum HostText: Hashable, Sendable {
    case address(SocketEndpoint)
    case name(String)

    /// - Parameters:
    ///   - text: A name, an IPv4 address in dotted decimal notation, or an IPv6 address with or without
    ///     brackets.
    ///   - port: The port for the result if `text` is an address.
    package init(_ text: String, port: UInt16) throws(HostError) {
        guard (1...Self.longest).contains(text.utf8.count) else {
            throw HostError("a host must be 1 to \(Self.longest) bytes long, but is \(text.utf8.count)")
        }
        guard !text.utf8.contains(0) else { throw HostError("\(Self.quote(text)) contains a zero byte") }
        if text.utf8.contains(where: { Self.ofIPv6Only.contains($0) }) {
            guard let address = SocketEndpoint(literal: Self.withoutBrackets(text), port: port), address.family == .ipv6 else {
                throw HostError("\(Self.quote(text)) is not an IPv6 address, and a host name cannot contain colons or brackets")
            }
            self = .address(address)
        } else if Self.endsInNumber(text) {
            guard let address = SocketEndpoint(literal: text, port: port) else {
                throw HostError("\(Self.quote(text)) is neither a host name nor an IPv4 address: write four decimal numbers")
            }
            self = .address(address)
        } else {
            self = .name(text)
        }
    }

    /// The maximum length of a domain name, and of a name in a SOCKS request (RFC 1035, section 2.3.4; RFC
    /// 1928, section 5).
    private static let longest = 255
    private static let ofIPv6Only = Array(":[]".utf8)

    private static func quote(_ text: String) -> String { ProxyFailure.quote(text.utf8) }

    private static func withoutBrackets(_ text: String) -> String {
        let bytes = text.utf8
        guard bytes.first == UInt8(ascii: "["), bytes.last == UInt8(ascii: "]"), bytes.count > 2 else { return text }
        return String(decoding: bytes.dropFirst().dropLast(), as: UTF8.self)
    }

    /// Whether strtoul(3), which inet_aton uses, could parse the last label as a number.
    private static func endsInNumber(_ text: String) -> Bool {
        guard let last = text.utf8.split(separator: UInt8(ascii: ".")).last, let first = last.first, isDigit(first) else {
            return false
        }
        let marksHexadecimal = first == UInt8(ascii: "0") && (last.dropFirst().first ?? 0) | 0x20 == UInt8(ascii: "x")
        return marksHexadecimal ? last.dropFirst(2).allSatisfy(isHexadecimalDigit) : last.allSatisfy(isDigit)
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
    }

    private static func isHexadecimalDigit(_ byte: UInt8) -> Bool {
        isDigit(byte) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte | 0x20)
    }
}

package struct HostError: Error, Hashable, Sendable {
    /// One sentence that starts with a lowercase letter.
    package let message: String

    init(_ message: String) {
        self.message = message
    }
}

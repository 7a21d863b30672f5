// Rules of a host's text, wherever one is taken: connecting, resolving, proxies, and the targets of proxies.
//  1. It has 1 to 255 bytes without a zero: C would take the bytes before the zero for the whole.
//  2. With a colon or a bracket it is an IPv6 address, in brackets or not, or it is refused.
//  3. If its last part is a number it is an IPv4 address in four decimal numbers, or it is refused, with a
//     dot at the end or without. The shorthands and other bases of inet_aton(3) (`127.1`, `2130706433`,
//     `0x7f.0.0.1`, `0177.0.0.1`) are refused: a filter may read them differently from the code that
//     connects. No name is lost, since no top-level domain is a number (RFC 3696, section 2).
//  4. Everything else is a name. The resolver knows whether there is such a host.

/// The meaning of a text that names a host.
package enum HostText: Hashable, Sendable {
    case address(SocketAddress)
    case name(String)

    /// - Parameters:
    ///   - text: A name, an IPv4 address in four decimal numbers, or an IPv6 address, which may be in
    ///     brackets.
    ///   - port: The port that an address gets.
    package init(_ text: String, port: UInt16) throws(HostError) {
        guard (1...Self.longest).contains(text.utf8.count) else {
            throw HostError("a host must have 1 to \(Self.longest) bytes, and this one has \(text.utf8.count)")
        }
        guard !text.utf8.contains(0) else { throw HostError("\(Self.quote(text)) has a zero byte") }
        if text.utf8.contains(where: { Self.ofIPv6Only.contains($0) }) {
            guard let address = SocketAddress(literal: Self.withoutBrackets(text), port: port), address.family == .ipv6 else {
                throw HostError("\(Self.quote(text)) is not an IPv6 address, and a name has neither colons nor brackets")
            }
            self = .address(address)
        } else if Self.endsInNumber(text) {
            guard let address = SocketAddress(literal: text, port: port) else {
                throw HostError("\(Self.quote(text)) ends in a number and is not an IPv4 address: write four decimal numbers")
            }
            self = .address(address)
        } else {
            self = .name(text)
        }
    }

    /// The longest domain name, and the longest in a SOCKS request (RFC 1035, section 2.3.4; RFC 1928,
    /// section 5).
    private static let longest = 255
    private static let ofIPv6Only = Array(":[]".utf8)

    private static func quote(_ text: String) -> String { ProxyFailure.quote(text.utf8) }

    private static func withoutBrackets(_ text: String) -> String {
        let bytes = text.utf8
        guard bytes.first == UInt8(ascii: "["), bytes.last == UInt8(ascii: "]"), bytes.count > 2 else { return text }
        return String(decoding: bytes.dropFirst().dropLast(), as: UTF8.self)
    }

    /// True when strtoul(3), which inet_aton calls, could read the last part as a number.
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

/// Why a text names no host.
package struct HostError: Error, Hashable, Sendable {
    /// One sentence, without its capital.
    package let message: String

    init(_ message: String) {
        self.message = message
    }
}

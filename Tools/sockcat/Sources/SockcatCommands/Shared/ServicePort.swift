internal import Glibc

/// A port on the command line: a number, or the name of a service in /etc/services, such as "https".
enum ServicePort {
    /// Returns `nil` if the text is neither a number up to 65535 nor a known name.
    static func number(_ text: String) -> UInt16? {
        if let number = UInt16(text) { return number }
        guard text.utf8.allSatisfy(isNameByte) else { return nil }
        return known(text) ?? known(text.lowercased())
    }

    private static func known(_ name: String) -> UInt16? {
        var service = servent()
        var found: UnsafeMutablePointer<servent>?
        var strings = [CChar](repeating: 0, count: 4096)
        guard getservbyname_r(name, nil, &service, &strings, strings.count, &found) == 0, found != nil else {
            return nil
        }
        return UInt16(truncatingIfNeeded: service.s_port).byteSwapped
    }

    /// Names consist of letters, digits and hyphens (RFC 6335, section 5.1). /etc/services also has "_", "+"
    /// and ".".
    private static func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
            UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "+"), UInt8(ascii: "."):
            true
        default: false
        }
    }

    static func failure(_ text: String, from first: Int) -> Failure {
        Failure.usage(
            "\"\(text)\" is not a port",
            advice: "pass a number from \(first) to 65535, or a name from /etc/services such as https")
    }
}

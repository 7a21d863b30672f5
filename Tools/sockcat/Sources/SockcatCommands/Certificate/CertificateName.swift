internal import Glibc

/// A name for a new certificate of a server: a DNS name, a wildcard such as "*.example.org", or an IP
/// address. The library's authority also accepts other names, because tests of clients need them.
enum CertificateName {
    static func validate(_ names: [String]) throws {
        for name in names where !isAddress(name) && !isDNSName(name) {
            throw Failure.usage(
                "\"\(name)\" is neither a DNS name nor an IP address",
                advice: name.utf8.allSatisfy { $0 < 0x80 }
                    ? "write a name such as www.example.org or *.example.org"
                    : "write international names as A-labels, such as \"xn--bcher-kva.example\"")
        }
    }

    static func isAddress(_ name: String) -> Bool {
        var (address4, address6) = (in_addr(), in6_addr())
        return inet_pton(AF_INET, name, &address4) == 1 || inet_pton(AF_INET6, name, &address6) == 1
    }

    /// Whether the name can be a host's.
    static func isHostName(_ name: String) -> Bool { isDNSName(name) && !name.hasPrefix("*") }

    private static func isDNSName(_ name: String) -> Bool {
        var labels = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        if labels.count > 1, labels[0].elementsEqual("*".utf8) { labels.removeFirst() }
        // A last label of digits belongs to an address (RFC 1123, section 2.1).
        guard name.utf8.count <= 253, let last = labels.last, !last.allSatisfy(isDigit) else { return false }
        return labels.allSatisfy(isLabel)
    }

    private static func isLabel(_ label: Substring.UTF8View) -> Bool {
        guard (1...63).contains(label.count), label.first != hyphen, label.last != hyphen else { return false }
        return label.allSatisfy { byte in
            isDigit(byte) || byte == hyphen || byte == UInt8(ascii: "_")
                || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
        }
    }

    private static let hyphen = UInt8(ascii: "-")

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}

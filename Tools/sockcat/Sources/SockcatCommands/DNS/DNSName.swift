internal import Glibc

/// A domain name: labels of any bytes. Names are compared without regard to the case of ASCII letters, so the
/// letters are stored in lower case.
struct DNSName: Hashable, Sendable, CustomStringConvertible {
    let labels: [[UInt8]]

    /// The length of the longest name in a message, with the length of each label (RFC 1035, section 2.3.4).
    static let longestName = 255

    /// - Parameter labels: At most 63 bytes each, from a message or a verified host name.
    init(labels: [[UInt8]]) {
        self.labels = labels.map { $0.map { (65...90).contains($0) ? $0 + 32 : $0 } }
    }

    /// Parses a host name or domain that the user entered, which may end with a dot.
    init(_ text: String) throws {
        let name = text.hasSuffix(".") ? String(text.dropLast()) : text
        guard !name.hasPrefix("*"), !CertificateName.isAddress(name) else {
            throw Failure.usage("\"\(text)\" is not a domain name", advice: "pass a name such as example.org")
        }
        try CertificateName.validate([name])
        self.init(labels: name.utf8.split(separator: UInt8(ascii: ".")).map { Array($0) })
    }

    /// The name of records about a service or port below this name, such as "_25._tcp.example.org".
    func prefixed(by labels: String...) throws -> DNSName {
        let name = DNSName(labels: labels.map { Array($0.utf8) } + self.labels)
        guard name.wireLength <= Self.longestName, labels.allSatisfy({ (1...63).contains($0.utf8.count) }) else {
            throw Failure.usage("\"\(name)\" is too long for a domain name")
        }
        return name
    }

    private var wireLength: Int { labels.reduce(1) { $0 + $1.count + 1 } }

    /// The name as in a message, without compression.
    var wire: [UInt8] { labels.flatMap { [UInt8($0.count)] + $0 } + [0] }

    static let root = DNSName(labels: [])

    var isRoot: Bool { labels.isEmpty }

    /// The name of a host, or `nil` if no host can have the name: the DNS may contain any bytes.
    var hostName: String? {
        let text = labels.map { String(decoding: $0, as: UTF8.self) }.joined(separator: ".")
        // A dot inside a label would split it.
        let hasDots = labels.contains { $0.contains(UInt8(ascii: ".")) }
        return !hasDots && CertificateName.isHostName(text) ? text : nil
    }

    /// The name in presentation form (RFC 1035, section 5.1), in ASCII.
    var description: String {
        labels.isEmpty ? "." : labels.map { $0.map(Self.text).joined() }.joined(separator: ".")
    }

    private static func text(_ byte: UInt8) -> String {
        switch byte {
        case UInt8(ascii: "."), UInt8(ascii: "\\"), UInt8(ascii: "\""), UInt8(ascii: ";"): "\\" + String(UnicodeScalar(byte))
        case 0x21...0x7E: String(UnicodeScalar(byte))
        default: "\\" + NumberText.padded(Int(byte), to: 3)
        }
    }
}

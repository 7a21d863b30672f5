internal import COpenSSL

/// A TLSA record (RFC 6698): a statement in the DNS about the certificate or the key of a server.
///
/// A record proves nothing unless DNSSEC has validated it. This library does not query the DNS.
///
/// ```swift
/// let record = try TLSARecord("3 1 1 8cb0fc6c527506a053f4f14c8464bebbd6dede2738d11468dd953d7d6a3021f1")
/// ```
public struct TLSARecord: Sendable, Hashable {
    /// How the record restricts the server's certificates.
    public var usage: Usage
    /// The part of a certificate that the record describes.
    public var selector: Selector
    /// The form in which the record describes this part.
    public var matchingType: MatchingType
    /// The certificate association data: a digest, or a whole certificate or key in DER.
    public var data: [UInt8]

    /// Creates a record from the fields of its wire format (RFC 6698, section 2.1).
    ///
    /// Any values are accepted, because the DNS may contain any values: see `isUsable`.
    public init(usage: Usage, selector: Selector, matchingType: MatchingType, data: [UInt8]) {
        self.usage = usage
        self.selector = selector
        self.matchingType = matchingType
        self.data = data
    }

    /// How a record restricts the server's certificates (RFC 6698, section 2.1.1; RFC 7671, section 5).
    public struct Usage: RawRepresentable, Sendable, Hashable {
        /// The number in the record.
        public var rawValue: UInt8

        /// Creates a usage from its number, which may be unknown.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// PKIX-TA(0): The chain leads to one of the trusted roots and contains this authority.
        public static let pkixTA = Usage(rawValue: 0)
        /// PKIX-EE(1): The chain leads to one of the trusted roots, and this is the server's own certificate.
        public static let pkixEE = Usage(rawValue: 1)
        /// DANE-TA(2): The chain leads to this authority. The name and the dates must be right. If the record
        /// is a digest, the server must send the authority's certificate.
        public static let daneTA = Usage(rawValue: 2)
        /// DANE-EE(3): This is the server's own certificate or key. Its names, dates and issuer are ignored.
        public static let daneEE = Usage(rawValue: 3)
    }

    /// The part of a certificate that a record describes (RFC 6698, section 2.1.2).
    public struct Selector: RawRepresentable, Sendable, Hashable {
        /// The number in the record.
        public var rawValue: UInt8

        /// Creates a selector from its number, which may be unknown.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// Cert(0): The whole certificate.
        public static let certificate = Selector(rawValue: 0)
        /// SPKI(1): The public key with its algorithm.
        public static let publicKey = Selector(rawValue: 1)
    }

    /// The form of a record's data (RFC 6698, section 2.1.3).
    public struct MatchingType: RawRepresentable, Sendable, Hashable {
        /// The number in the record.
        public var rawValue: UInt8

        /// Creates a matching type from its number, which may be unknown.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// Full(0): The data is the certificate or key itself.
        public static let full = MatchingType(rawValue: 0)
        /// SHA2-256(1): The data is a SHA-256 digest, 32 bytes.
        public static let sha256 = MatchingType(rawValue: 1)
        /// SHA2-512(2): The data is a SHA-512 digest, 64 bytes.
        public static let sha512 = MatchingType(rawValue: 2)
    }
}

// MARK: - Presentation form

extension TLSARecord {
    /// Creates a record from its presentation form (RFC 6698, section 2.2): usage, selector, matching type
    /// and the data in hexadecimal, which may contain spaces. Numbers may be acronyms (RFC 7218), such as
    /// "DANE-EE SPKI SHA2-256".
    ///
    /// Throws `invalidTLSARecord` for any other text. Records with unknown numbers or data of the wrong
    /// length are accepted: see `isUsable`.
    public init(_ text: String) throws(TLSError) {
        guard text.utf8.count <= Self.longestText else {
            throw Self.invalid("has \(text.utf8.count) bytes, but at most \(Self.longestText) are accepted")
        }
        let words = text.utf8.split { Self.spaces.contains($0) }.map { String(Substring($0)) }
        guard words.count >= 4 else {
            throw Self.invalid("\"\(text.printable)\" does not have four parts (usage, selector, matching type and data)")
        }
        usage = Usage(rawValue: try Self.number(words[0], "usage", ["PKIX-TA", "PKIX-EE", "DANE-TA", "DANE-EE", "PRIVCERT"]))
        selector = Selector(rawValue: try Self.number(words[1], "selector", ["CERT", "SPKI", "PRIVSEL"]))
        matchingType = MatchingType(
            rawValue: try Self.number(words[2], "matching type", ["FULL", "SHA2-256", "SHA2-512", "PRIVMATCH"]))
        data = try Self.bytes(words.dropFirst(3).joined())
    }

    /// The record in presentation form: "3 1 1 8cb0fc6c…", with all digits.
    public var text: String { "\(usage.rawValue) \(selector.rawValue) \(matchingType.rawValue) \(data.hexadecimal)" }

    /// The text for a message: at most the first 16 bytes of the data.
    var shortText: String {
        var short = self
        short.data = Array(data.prefix(16))
        return "\"\(short.text)\(data.count > 16 ? "…" : "")\""
    }

    /// DNS data has at most 65,535 bytes, and each byte has two digits. Zone files contain more spaces.
    private static let longestText = 200_000
    private static let longestData = 65_532
    private static let spaces: [UInt8] = [0x20, 0x09, 0x0A, 0x0D]

    /// The last acronym is for private use, with the number 255.
    private static func number(_ word: String, _ field: String, _ acronyms: [String]) throws(TLSError) -> UInt8 {
        // Unicode has other characters whose upper case is an ASCII letter.
        let upperCase = word.utf8.map { (97...122).contains($0) ? $0 - 32 : $0 }
        if let index = acronyms.firstIndex(where: { $0.utf8.elementsEqual(upperCase) }) {
            return index == acronyms.count - 1 ? 255 : UInt8(index)
        }
        // `UInt8(_:)` would accept a plus sign.
        guard word.utf8.allSatisfy({ (48...57).contains($0) }), let number = UInt8(word) else {
            throw invalid("the \(field) \"\(word.printable)\" is not a number from 0 to 255")
        }
        return number
    }

    private static func bytes(_ digits: String) throws(TLSError) -> [UInt8] {
        let digits = Array(digits.utf8)
        let values = digits.compactMap { digit -> UInt8? in
            switch digit {
            case 48...57: digit - 48
            case 65...70: digit - 55
            case 97...102: digit - 87
            default: nil
            }
        }
        guard values.count == digits.count else { throw invalid("the data contains characters that are not hexadecimal") }
        guard values.count.isMultiple(of: 2) else { throw invalid("the data has an odd number of hexadecimal digits") }
        guard values.count / 2 <= longestData else { throw invalid("the data is longer than \(longestData) bytes") }
        return stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }

    static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidTLSARecord, "a TLSA record cannot be read: \(complaint)", operation: "TLSARecord")
    }
}

extension TLSARecord: CustomStringConvertible {
    /// The same as `text`.
    public var description: String { text }
}

// MARK: - Comparing

extension TLSARecord {
    /// Whether the record describes this certificate.
    func matches(_ certificate: TLSCertificate) -> Bool {
        Self.data(of: certificate, selector, matchingType) == data
    }

    /// Returns the data of a record for a certificate, or `nil` for unknown numbers.
    static func data(of certificate: TLSCertificate, _ selector: Selector, _ matchingType: MatchingType) -> [UInt8]? {
        switch selector {
        case .certificate: digest(certificate.derBytes, matchingType)
        case .publicKey: digest(certificate.publicKey, matchingType)
        default: nil
        }
    }

    fileprivate static func digest(_ bytes: [UInt8], _ matchingType: MatchingType) -> [UInt8]? {
        switch matchingType {
        case .full: return bytes
        case .sha256: return DigestFields.digest(of: bytes)
        case .sha512:
            var digest = [UInt8](repeating: 0, count: 64)
            SHA512(bytes, bytes.count, &digest)
            return digest
        default: return nil
        }
    }
}

// MARK: - Publishing

extension TLSARecord {
    /// Creates the record to publish for a certificate. The defaults, "3 1 1", are recommended by RFC 7671,
    /// section 5.1: the record remains valid when the certificate is renewed with the same key.
    ///
    /// For `daneTA` and `pkixTA`, pass the certificate of the authority. For `daneTA` with a digest, the
    /// server must send it. Throws `invalidTLSARecord` if a number is unknown.
    public init(
        for certificate: TLSCertificate, usage: Usage = .daneEE, selector: Selector = .publicKey,
        matchingType: MatchingType = .sha256
    ) throws(TLSError) {
        guard usage.rawValue <= 3, let data = Self.data(of: certificate, selector, matchingType) else {
            throw Self.invalid("no record can be made with an unknown usage, selector or matching type")
        }
        self.init(usage: usage, selector: selector, matchingType: matchingType, data: data)
    }

    /// Creates the record to publish for a public key that has no certificate yet, such as the next key of a
    /// server.
    ///
    /// - Parameter publicKey: A SubjectPublicKeyInfo in DER, as `TLSPrivateKey.publicKey` returns.
    /// - Throws: `invalidTLSARecord` if `publicKey` is not a public key, or if a number is unknown.
    public init(
        forPublicKey publicKey: [UInt8], usage: Usage = .daneEE, matchingType: MatchingType = .sha256
    ) throws(TLSError) {
        guard PublicKeyInfo.canonical(publicKey) != nil else {
            throw Self.invalid("the data is not a DER-encoded SubjectPublicKeyInfo")
        }
        guard usage.rawValue <= 3, let data = Self.digest(publicKey, matchingType) else {
            throw Self.invalid("no record can be made with an unknown usage or matching type")
        }
        self.init(usage: usage, selector: .publicKey, matchingType: matchingType, data: data)
    }
}

extension TLSARecord: Digestible {
    func append(to fields: inout DigestFields) {
        fields.append([usage.rawValue, selector.rawValue, matchingType.rawValue])
        fields.append(data)
    }
}

extension TLSError.Code {
    /// A text is not a TLSA record, or a record cannot be made.
    public static let invalidTLSARecord = TLSError.Code("invalidTLSARecord", fault: .caller)
}

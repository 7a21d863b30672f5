/// A token of an XMPP stream.
struct XMLToken: Sendable {
    enum Kind {
        case start
        case empty
        case end
        case text
        /// `<?xml … ?>`, at the start of the stream.
        case declaration
    }

    let kind: Kind
    /// The name as written, with its prefix.
    let name: String
    let attributes: [String: String]
    /// The token as it was received, for errors.
    let source: String
}

/// Splits the part of an XML stream that precedes TLS. Comments, processing instructions, document types and
/// entity declarations are rejected, as RFC 6120, section 11.1, requires.
enum XMLTokenizer {
    /// Removes a token. Returns `nil` if it is incomplete.
    static func take(from input: inout MessageInput, for side: some ProtocolSide) throws(StartTLSError) -> XMLToken? {
        let rest = input.rest
        guard rest.first == UInt8(ascii: "<") else {
            let text = rest.prefix { $0 != UInt8(ascii: "<") }
            _ = input.take(text.count)
            return XMLToken(kind: .text, name: "", attributes: [:], source: ascii(text))
        }
        guard let tag = input.tag() else { return nil }
        let source = ascii(tag)
        guard let token = parse(source) else { throw side.unexpected(source) }
        return token
    }

    /// Returns the text with question marks instead of bytes that are not ASCII: comparisons of other text
    /// can take time that grows with the square of its length.
    private static func ascii(_ bytes: ArraySlice<UInt8>) -> String {
        String(decoding: bytes.map { $0 < 128 ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
    }

    private static func parse(_ source: String) -> XMLToken? {
        var inside = source.dropFirst().dropLast()
        var kind = XMLToken.Kind.start
        if inside.hasPrefix("?xml ") {
            guard inside.hasSuffix("?") else { return nil }
            inside = inside.dropFirst().dropLast()
            kind = .declaration
        } else if inside.hasPrefix("/") {
            inside = inside.dropFirst()
            kind = .end
        } else if inside.hasSuffix("/") {
            inside = inside.dropLast()
            kind = .empty
        }
        let name = inside.prefix { !$0.isXMLSpace }
        guard let first = name.first, first.isLetter || first == "_", !name.contains("<") else { return nil }
        guard let attributes = attributes(inside.dropFirst(name.count)), kind != .end || attributes.isEmpty else { return nil }
        return XMLToken(kind: kind, name: String(name), attributes: attributes, source: source)
    }

    private static func attributes(_ text: Substring) -> [String: String]? {
        var attributes: [String: String] = [:]
        var rest = text.drop(while: \.isXMLSpace)
        while !rest.isEmpty {
            let name = rest.prefix { $0 != "=" && !$0.isXMLSpace }
            rest = rest.dropFirst(name.count).drop(while: \.isXMLSpace)
            guard !name.isEmpty, rest.first == "=" else { return nil }
            rest = rest.dropFirst().drop(while: \.isXMLSpace)
            guard let quote = rest.first, quote == "\"" || quote == "'" else { return nil }
            let value = rest.dropFirst().prefix { $0 != quote }
            guard attributes.updateValue(String(value), forKey: String(name)) == nil, !value.contains("<") else { return nil }
            rest = rest.dropFirst(value.count + 2).drop(while: \.isXMLSpace)
        }
        return attributes
    }
}

extension Character {
    /// White space in XML.
    var isXMLSpace: Bool { self == " " || self == "\t" || self == "\n" || self == "\r" || self == "\r\n" }
}

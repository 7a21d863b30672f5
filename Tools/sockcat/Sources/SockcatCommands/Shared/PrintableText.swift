internal import FoundationEssentials
internal import Glibc

/// Text for a terminal, a log or a report. Values that are inserted into it cannot contain control or format
/// characters, so a peer cannot add lines, change colors or reorder what people read.
///
/// Only literals in the source code are copied as they are. All output of the program has this type, except
/// the data that `connect` and `listen` forward.
struct PrintableText: ExpressibleByStringInterpolation, Equatable, Hashable, Sendable {
    let text: String

    private init(trusted text: String) {
        self.text = text
    }

    init(stringLiteral text: String) {
        self.init(trusted: text)
    }

    init(stringInterpolation: StringInterpolation) {
        self.init(trusted: stringInterpolation.text)
    }

    /// Replaces each control and format character with U+FFFD.
    init(_ text: String) {
        var cleaned = String.UnicodeScalarView()
        for scalar in text.unicodeScalars { cleaned.append(scalar.isPrintable ? scalar : "\u{FFFD}") }
        self.init(trusted: String(cleaned))
    }

    struct StringInterpolation: StringInterpolationProtocol {
        fileprivate var text: String

        init(literalCapacity: Int, interpolationCount: Int) {
            text = ""
            text.reserveCapacity(literalCapacity)
        }

        mutating func appendLiteral(_ literal: String) { text += literal }
        mutating func appendInterpolation(_ part: PrintableText) { text += part.text }
        mutating func appendInterpolation(_ value: some Any) { text += PrintableText("\(value)" as String).text }
    }
}

extension PrintableText {
    static func + (left: PrintableText, right: PrintableText) -> PrintableText { "\(left)\(right)" }

    /// The text with spaces at its end, so that it has at least this number of characters.
    func padded(to width: Int) -> PrintableText {
        PrintableText(trusted: text + String(repeating: " ", count: max(0, width - text.count)))
    }

    /// Encodes a value as one JSON object in one line. Its strings are cleaned too.
    init(json value: some Encodable) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(date.gregorianText)
        }
        let json = String(decoding: try encoder.encode(value), as: UTF8.self)
        // The encoder escapes control characters as \n, \u001b and so on, but leaves format characters as
        // they are. By scalars, because a preceding character can form one `Character` with the backslash.
        let escape = #/\\(?:(["\\/])|u([0-9a-fA-F]{4})|.)/#.matchingSemantics(.unicodeScalar)
        let cleaned = json.replacing(escape) { match in
            if match.1 != nil { return String(match.0) }
            let scalar = match.2.flatMap { UInt32($0, radix: 16) }.flatMap(Unicode.Scalar.init)
            return scalar?.isPrintable == true ? String(match.0) : "\u{FFFD}"
        }
        self.init(cleaned)
    }
}

extension Sequence<PrintableText> {
    func joined(separator: PrintableText = "") -> PrintableText {
        var result: PrintableText?
        for part in self { result = result.map { $0 + separator + part } ?? part }
        return result ?? ""
    }

    /// The texts as lines, each with a line end.
    var asLines: PrintableText { map { "\($0)\n" }.joined() }
}

extension Unicode.Scalar {
    /// Whether the character is neither a control or format character nor a line or paragraph separator.
    fileprivate var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}

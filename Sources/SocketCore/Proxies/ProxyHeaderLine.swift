/// Version 1 of the PROXY protocol: a line of text (section 2.1).
enum ProxyHeaderLine {
    /// The maximum length of a line in bytes, including CRLF.
    static let longest = 107

    private enum Kind: CaseIterable {
        case unknown, tcp6, tcp4

        var beginning: String {
            switch self {
            case .unknown: "PROXY UNKNOWN"
            case .tcp6: "PROXY TCP6 "
            case .tcp4: "PROXY TCP4 "
            }
        }

        /// The length of the shortest valid line in bytes, such as `PROXY TCP6 :: :: 0 0` with CRLF.
        var shortest: Int {
            switch self {
            case .unknown: 15
            case .tcp6: 22
            case .tcp4: 32
            }
        }

        var family: SocketEndpoint.Family { self == .tcp6 ? .ipv6 : .ipv4 }

        func allows(_ byte: UInt8) -> Bool {
            switch (self, byte) {
            case (.unknown, _): true
            case (_, UInt8(ascii: "0")...UInt8(ascii: "9")), (_, UInt8(ascii: ".")): true
            case (.tcp6, UInt8(ascii: "a")...UInt8(ascii: "f")), (.tcp6, UInt8(ascii: "A")...UInt8(ascii: "F")): true
            case (.tcp6, UInt8(ascii: ":")): true
            case (.tcp6, _), (.tcp4, _): false
            }
        }
    }

    private static let space = UInt8(ascii: " ")
    private static let carriageReturn = UInt8(ascii: "\r")
    private static let lineFeed = UInt8(ascii: "\n")

    /// - Throws: `.malformed` or `.tooLong`.
    static func parse(_ bytes: UnsafeRawBufferPointer) throws(ProxyHeaderError) -> ProxyHeader.ParsingAnswer {
        let kinds = Kind.allCases.filter { zip($0.beginning.utf8, bytes).allSatisfy(==) }
        guard let shortest = kinds.map(\.shortest).min(), let kind = kinds.first else {
            throw .malformed("the peer did not send a PROXY header: \(ProxyFailure.quote(bytes, limit: 32))")
        }
        let beginning = kind.beginning.utf8.count
        guard bytes.count >= beginning else { return .incomplete(minimumCount: shortest) }
        let rest = UnsafeRawBufferPointer(rebasing: bytes.prefix(longest).dropFirst(beginning))
        guard let end = try endOfLine(rest, kind) else {
            try check(rest, isComplete: false, kind)
            let missing = bytes.last == carriageReturn ? 1 : 2
            guard bytes.count + missing <= longest else {
                throw ProxyHeaderError(.tooLong, "the peer's PROXY line exceeds \(longest) bytes")
            }
            return .incomplete(minimumCount: max(shortest, bytes.count + missing))
        }
        let text = UnsafeRawBufferPointer(rebasing: rest.prefix(end))
        let header = kind == .unknown ? .unknown : try header(in: text, kind)
        return .complete(header, consumedCount: beginning + end + 2)
    }

    /// Returns the position of CRLF, or `nil` if it has not been received.
    private static func endOfLine(_ bytes: UnsafeRawBufferPointer, _ kind: Kind) throws(ProxyHeaderError) -> Int? {
        if kind == .unknown, let first = bytes.first, first != space, first != carriageReturn {
            throw .malformed("the peer's PROXY line has no space after \"UNKNOWN\"")
        }
        for (index, byte) in bytes.enumerated() {
            switch byte {
            case carriageReturn:
                guard index + 1 < bytes.count else { return nil }
                guard bytes[index + 1] == lineFeed else { throw .malformed("the peer's PROXY line has a CR without an LF") }
                return index
            case lineFeed: throw .malformed("the peer's PROXY line has an LF without a CR")
            case space: continue
            default:
                guard kind.allows(byte) else {
                    throw .malformed("the peer's PROXY line contains the invalid byte \(byte): \(quote(bytes))")
                }
            }
        }
        return nil
    }

    // MARK: - Addresses and ports

    private static func header(in text: UnsafeRawBufferPointer, _ kind: Kind) throws(ProxyHeaderError) -> ProxyHeader {
        let words = try check(text, isComplete: true, kind)
        guard words.count == 4, let sourcePort = port(words[2]), let destinationPort = port(words[3]),
            let source = address(words[0], sourcePort, kind), let destination = address(words[1], destinationPort, kind)
        else { throw .malformed("the peer's PROXY line does not contain two addresses and two ports: \(quote(text))") }
        return ProxyHeader(source: source, destination: destination)
    }

    /// Splits the text into words. Checks every word that is complete, which means that a space or the end
    /// of the line follows it.
    @discardableResult
    private static func check(
        _ text: UnsafeRawBufferPointer, isComplete: Bool, _ kind: Kind
    ) throws(ProxyHeaderError) -> [String] {
        guard kind != .unknown else { return [] }
        let words = text.prefix { $0 != carriageReturn }.split(separator: space, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        guard words.count <= 4 else {
            throw .malformed("the peer's PROXY line contains more than two addresses and two ports: \(quote(text))")
        }
        for (index, word) in words.enumerated() where isComplete || index < words.count - 1 {
            let isRight = index < 2 ? address(word, 0, kind) != nil : port(word) != nil
            guard isRight else {
                let name = ["source address", "destination address", "source port", "destination port"][index]
                throw .malformed("the peer's PROXY line has an invalid \(name): \(quote(text))")
            }
        }
        return words
    }

    private static func address(_ word: String, _ port: UInt16, _ kind: Kind) -> SocketEndpoint? {
        guard let address = SocketEndpoint(literal: word, port: port), address.family == kind.family else { return nil }
        return address
    }

    /// Parses a decimal number without leading zeros.
    private static func port(_ word: String) -> UInt16? {
        guard !word.isEmpty, word.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains),
            word == "0" || !word.hasPrefix("0")
        else { return nil }
        return UInt16(word)
    }

    private static func quote(_ bytes: UnsafeRawBufferPointer) -> String {
        ProxyFailure.quote(bytes, limit: longest)
    }
}

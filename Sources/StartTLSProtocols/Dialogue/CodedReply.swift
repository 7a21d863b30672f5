/// A reply with a three-digit code, in one or more lines: SMTP and LMTP (RFC 5321, section 4.2.1), FTP (RFC
/// 959, section 4.2).
struct CodedReply: Sendable {
    let code: String
    /// The text of each line, without the code.
    let texts: [String]
    /// The last line, for errors.
    let line: String
}

/// Collects the lines of a reply.
struct CodedReplyReader: Sendable {
    /// Whether lines between the first and the last may lack the code, as in FTP.
    let allowsLinesWithoutCode: Bool
    private var code: String?
    private var texts: [String] = []

    init(allowsLinesWithoutCode: Bool = false) {
        self.allowsLinesWithoutCode = allowsLinesWithoutCode
    }

    enum Answer {
        case incomplete
        case reply(CodedReply)
        /// This line does not belong to a reply.
        case unexpected(String)

        /// Returns the reply, or `nil` if it is incomplete.
        func reply(for side: some ProtocolSide) throws(StartTLSError) -> CodedReply? {
            switch self {
            case .incomplete: return nil
            case .reply(let reply): return reply
            case .unexpected(let line): throw side.unexpected(line)
            }
        }
    }

    /// Removes lines from `input` up to the end of a reply.
    mutating func take(from input: inout MessageInput) -> Answer {
        while let line = input.line() {
            guard let (newCode, isLast) = Self.parse(line), code == nil || newCode == code else {
                guard allowsLinesWithoutCode, code != nil else { return .unexpected(line) }
                texts.append(line)
                continue
            }
            code = newCode
            texts.append(String(line.dropFirst(4)))
            guard isLast else { continue }
            defer { (code, texts) = (nil, []) }
            return .reply(CodedReply(code: newCode, texts: texts, line: line))
        }
        return .incomplete
    }

    /// Returns the code, and whether this is the last line.
    private static func parse(_ line: String) -> (code: String, isLast: Bool)? {
        let code = line.prefix(3)
        guard code.utf8.count == 3, code.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        switch line.dropFirst(3).first {
        case " ", nil: return (String(code), true)
        case "-": return (String(code), false)
        default: return nil
        }
    }
}

/// Reads a list of capabilities up to a line with a single dot, as in POP3 and NNTP.
struct CapabilityList: Sendable {
    /// The capability for TLS.
    let keyword: String
    private(set) var offersTLS = false

    init(of keyword: String) {
        self.keyword = keyword
    }

    /// Processes a line of the list. Returns whether it is the last one.
    mutating func isComplete(with line: String) -> Bool {
        if line == "." { return true }
        if line.keyword == keyword { offersTLS = true }
        return false
    }
}

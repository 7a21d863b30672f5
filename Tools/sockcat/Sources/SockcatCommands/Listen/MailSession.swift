/// The server side of a mail protocol after the upgrade to TLS. A value without I/O: lines in, replies out.
///
/// Mail is discarded and every login is rejected, so a client cannot cause a lasting effect.
protocol MailSession: Sendable {
    /// Returns the reply to a line, which is passed without its CR LF.
    mutating func receive(_ line: MailLine) -> MailReply

    /// Whether the next line is part of a message rather than a command.
    var isInMessage: Bool { get }
}

/// The reply to a line. Contains no text of the client except a valid IMAP tag.
struct MailReply: Equatable, Sendable {
    var lines: [String]
    /// Whether the server closes the connection after the reply.
    var isLast = false

    /// Inside a message, the client expects no reply.
    static let none = MailReply(lines: [])

    static func line(_ text: String) -> MailReply { MailReply(lines: [text]) }

    static func last(_ lines: String...) -> MailReply { MailReply(lines: lines, isLast: true) }

    var text: String { lines.map { "\($0)\r\n" }.joined() }
}

/// A line that a mail client has sent.
struct MailLine: Sendable {
    /// Longer lines are cut when they are printed.
    private static let printedBytes = 1000

    let bytes: [UInt8]

    init(_ bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    /// Whether the line consists of printable characters. A bare CR or LF, which other servers may take for a
    /// line break, is not printable.
    var isPrintable: Bool { bytes.allSatisfy { $0 >= 32 && $0 != 127 } }

    var words: [String] {
        bytes.split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The first word in upper case.
    var keyword: String { words.first?.uppercased() ?? "" }

    /// Whether the line continues with this text after its first word, ignoring case.
    func hasParameter(startingWith text: String) -> Bool {
        words.dropFirst().joined(separator: " ").utf8.lazy.map(Self.upperCase).starts(with: text.utf8)
    }

    /// The value of the parameter SIZE (RFC 1870). `.max` if it is not a number.
    var announcedBytes: Int? {
        let name = "SIZE=".utf8
        let word = words.first { $0.utf8.lazy.map(Self.upperCase).starts(with: name) }
        return word.map { Int(String($0.utf8.dropFirst(name.count)) ?? "") ?? .max }
    }

    private static func upperCase(_ byte: UInt8) -> UInt8 { (97...122).contains(byte) ? byte - 32 : byte }

    /// The line as it is printed. A tab, as in the folded headers of a message, is printed as a space.
    var printed: PrintableText {
        let shown = bytes.prefix(Self.printedBytes).map { $0 == 9 ? 32 : $0 }
        let text = PrintableText(String(decoding: shown, as: UTF8.self))
        return bytes.count > Self.printedBytes ? text + "…" : text
    }
}

/// The lines of a client as they are printed, without passwords.
struct MailLog: Sendable {
    /// These commands contain a user name, a password or a response that is derived from it.
    private static let loginCommands: Set<String> = ["AUTH", "USER", "PASS", "APOP", "LOGIN", "AUTHENTICATE"]
    /// Commands that are printed completely.
    private static let openCommands: Set<String> = [
        "EHLO", "HELO", "LHLO", "MAIL", "RCPT", "DATA", "RSET", "NOOP", "VRFY", "EXPN", "HELP", "QUIT", "BDAT", "STARTTLS",
        "CAPA", "STLS", "STAT", "LIST", "UIDL", "RETR", "CAPABILITY", "ID", "ENABLE", "SELECT", "EXAMINE", "STATUS", "LOGOUT",
    ]

    private var followsLogin = false

    /// Cuts login commands and unknown commands after their names. A client that does not wait for the reply
    /// to a login command may send a password in the next lines, so they are not printed until the next
    /// command.
    mutating func text(of line: MailLine, isInMessage: Bool) -> PrintableText {
        guard !isInMessage else { return line.printed }
        guard line.isPrintable else { return "a line with control characters" }
        let words = line.words.prefix(2).map { $0.uppercased() }
        if let login = words.firstIndex(where: Self.loginCommands.contains) {
            followsLogin = true
            return "\(MailLine(line.words[...login].joined(separator: " ").utf8).printed) …"
        }
        if words.contains(where: Self.openCommands.contains) {
            followsLogin = false
            return line.printed
        }
        return followsLogin || line.words.isEmpty ? "…" : "\(MailLine(line.words[0].utf8).printed) …"
    }
}

/// A session of IMAP (RFC 9051) after the upgrade, without mailboxes.
struct IMAPSession: MailSession {
    var isInMessage: Bool { false }

    mutating func receive(_ line: MailLine) -> MailReply {
        // The bytes of a literal would be mistaken for commands.
        guard line.bytes.last != UInt8(ascii: "}") else { return .last("* BYE Literals are not supported") }
        let words = line.words
        guard line.isPrintable, words.count >= 2, Self.isTag(words[0]) else {
            return .line("* BAD A tag and a command are expected")
        }
        let (tag, command) = (words[0], words[1].uppercased())
        switch command {
        // Clients then do not send a password.
        case "CAPABILITY": return MailReply(lines: ["* CAPABILITY IMAP4rev1 LOGINDISABLED", "\(tag) OK CAPABILITY completed"])
        case "NOOP": return .line("\(tag) OK NOOP completed")
        case "ID": return MailReply(lines: ["* ID NIL", "\(tag) OK ID completed"])
        case "LOGOUT": return .last("* BYE Logging out", "\(tag) OK LOGOUT completed")
        case "LOGIN", "AUTHENTICATE": return .line("\(tag) NO This server has no users")
        case "STARTTLS": return .line("\(tag) BAD TLS has already started")
        default: return .line("\(tag) BAD Log in first")
        }
    }

    /// Whether the text may be repeated in replies: printable ASCII without the characters that RFC 9051,
    /// section 9, excludes from tags.
    private static func isTag(_ text: String) -> Bool {
        text.utf8.count <= 64 && text.utf8.allSatisfy { (33...126).contains($0) && !"(){%*\"\\+".utf8.contains($0) }
    }
}

/// A session of POP3 (RFC 1939) after the upgrade, without mailboxes.
struct POP3Session: MailSession {
    var isInMessage: Bool { false }

    mutating func receive(_ line: MailLine) -> MailReply {
        switch line.keyword {
        case "CAPA": MailReply(lines: ["+OK Capability list follows", "PIPELINING", "."])
        case "QUIT": .last("+OK Bye")
        case "USER", "PASS", "APOP", "AUTH": .line("-ERR This server has no users")
        case "STLS": .line("-ERR TLS has already started")
        default: .line("-ERR Log in first")
        }
    }
}

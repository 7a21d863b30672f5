/// A session of SMTP (RFC 5321) or LMTP (RFC 2033) after the upgrade. Each message is accepted and discarded.
///
/// A message is terminated by a line with a single dot, and a line by CR LF. Servers that also accept a bare
/// LF can be tricked into treating part of a message as commands (SMTP smuggling).
struct SMTPSession: MailSession {
    static let maximumMessageBytes = 10 << 20
    static let maximumRecipients = 100

    private enum State: Equatable {
        /// The client has not introduced itself.
        case greeting
        case ready
        /// A message has a sender and this number of recipients.
        case envelope(recipients: Int)
        case message(recipients: Int, bytes: Int)
    }

    let isLMTP: Bool
    let name: String
    private var state = State.greeting

    init(isLMTP: Bool, name: String) {
        (self.isLMTP, self.name) = (isLMTP, name)
    }

    var isInMessage: Bool { if case .message = state { true } else { false } }

    mutating func receive(_ line: MailLine) -> MailReply {
        if case .message(let recipients, let bytes) = state { return receive(line, recipients, bytes) }
        guard line.isPrintable else { return .line("500 5.5.2 Commands must consist of printable characters") }
        let hasParameters = line.words.count > 1
        switch line.keyword {
        case "EHLO", "HELO", "LHLO": return hello(line, hasParameters: hasParameters)
        case "MAIL": return sender(line)
        case "RCPT": return recipient(line)
        case "DATA": return hasParameters ? .line("501 5.5.4 DATA has no parameters") : message()
        case "RSET":
            if state != .greeting { state = .ready }
            return .line("250 2.0.0 OK")
        case "NOOP": return .line("250 2.0.0 OK")
        case "VRFY": return .line("252 2.1.5 The address is not verified")
        case "QUIT": return .last("221 2.0.0 \(name) closing connection")
        // The bytes of the chunk would be mistaken for commands.
        case "BDAT": return .last("502 5.5.1 BDAT is not supported")
        case "STARTTLS": return .line("503 5.5.1 TLS has already started")
        case "AUTH": return .line("502 5.5.1 This server has no users")
        default: return .line("500 5.5.1 Command not recognized")
        }
    }

    private mutating func hello(_ line: MailLine, hasParameters: Bool) -> MailReply {
        guard isLMTP == (line.keyword == "LHLO") else { return .line("500 5.5.1 Command not recognized") }
        guard hasParameters else { return .line("501 5.5.4 A host name is required") }
        state = .ready
        if line.keyword == "HELO" { return .line("250 \(name)") }
        let extensions = ["PIPELINING", "8BITMIME", "SIZE \(Self.maximumMessageBytes)"]
        return MailReply(lines: ([name] + extensions).map { "250-\($0)" } + ["250 ENHANCEDSTATUSCODES"])
    }

    // MARK: - A message

    private mutating func sender(_ line: MailLine) -> MailReply {
        guard state == .ready else {
            return .line(
                state == .greeting ? "503 5.5.1 Send \(isLMTP ? "LHLO" : "EHLO") first" : "503 5.5.1 Sender already specified")
        }
        guard line.hasParameter(startingWith: "FROM:<") else { return .line("501 5.5.4 Syntax: MAIL FROM:<address>") }
        guard line.announcedBytes ?? 0 <= Self.maximumMessageBytes else { return .line("552 5.3.4 The message is too large") }
        state = .envelope(recipients: 0)
        return .line("250 2.1.0 OK")
    }

    private mutating func recipient(_ line: MailLine) -> MailReply {
        guard case .envelope(let recipients) = state else { return .line("503 5.5.1 Send MAIL first") }
        guard line.hasParameter(startingWith: "TO:<") else { return .line("501 5.5.4 Syntax: RCPT TO:<address>") }
        guard recipients < Self.maximumRecipients else { return .line("452 4.5.3 Too many recipients") }
        state = .envelope(recipients: recipients + 1)
        return .line("250 2.1.5 OK")
    }

    private mutating func message() -> MailReply {
        guard case .envelope(let recipients) = state, recipients > 0 else { return .line("503 5.5.1 Send RCPT first") }
        state = .message(recipients: recipients, bytes: 0)
        return .line("354 End the message with a line that contains only a dot")
    }

    /// LMTP has one reply for each recipient.
    private mutating func receive(_ line: MailLine, _ recipients: Int, _ bytes: Int) -> MailReply {
        if line.bytes == [UInt8(ascii: ".")] {
            state = .ready
            return MailReply(lines: Array(repeating: "250 2.0.0 Accepted and discarded", count: isLMTP ? recipients : 1))
        }
        let total = bytes + line.bytes.count + 2
        guard total <= Self.maximumMessageBytes else { return .last("552 5.3.4 The message is too large") }
        state = .message(recipients: recipients, bytes: total)
        return .none
    }
}

/// The client side of SMTP (RFC 3207) and LMTP (RFC 2033).
struct SMTPClient: Conversation {
    let isLMTP: Bool
    /// The client's own name in EHLO or LHLO.
    let clientName: String
    private var state = State.greeting
    private var replies = CodedReplyReader()

    private enum State {
        case greeting
        case hello
        case startTLS
    }

    init(isLMTP: Bool, clientName: String) {
        self.isLMTP = isLMTP
        self.clientName = clientName
    }

    var name: String { isLMTP ? "LMTP" : "SMTP" }
    var isClient: Bool { true }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(clientName, "the client's name", allowsSpaces: false)
        return .continue
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let reply = try replies.take(from: &input, for: self) else { return nil }
        switch (state, reply.code) {
        case (.greeting, "220"):
            state = .hello
            return .line("\(isLMTP ? "LHLO" : "EHLO") \(clientName)")
        case (.greeting, _): throw refusedConnection(reply.line)
        case (.hello, "250"):
            // The first line contains the server's name.
            guard reply.texts.dropFirst().contains(where: { $0.matches("STARTTLS") }) else { throw notOffered(reply.line) }
            state = .startTLS
            return .line("STARTTLS")
        // A server without extensions rejects the command.
        case (.hello, _): throw notOffered(reply.line)
        case (.startTLS, "220"): return .startTLS([])
        case (.startTLS, _): throw refused(reply.line)
        }
    }
}

/// The server side of SMTP and LMTP. Commands that need TLS are rejected.
struct SMTPServer: Conversation {
    let isLMTP: Bool
    /// The text of the greeting. Its first word is the server's name.
    let greeting: String
    let capabilities: [String]

    var name: String { isLMTP ? "LMTP" : "SMTP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "421 4.7.0 Too much data before STARTTLS") }

    private var serverName: String { greeting.words.first ?? "localhost" }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(greeting, "the greeting")
        for capability in capabilities { try check(capability, "a capability") }
        return .line("220 \(greeting)")
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words
        switch words.first?.uppercased() {
        case "EHLO" where !isLMTP, "LHLO" where isLMTP:
            let offers = [serverName] + capabilities + ["STARTTLS"]
            return .lines(offers.dropLast().map { "250-\($0)" } + ["250 STARTTLS"])
        case "HELO" where !isLMTP: return .line("250 \(serverName)")
        case "STARTTLS" where words.count == 1: return .startTLS([UInt8](line: "220 2.0.0 Ready to start TLS"))
        case "STARTTLS": return .line("501 5.5.4 STARTTLS has no parameters")
        case "NOOP", "RSET": return .line("250 2.0.0 OK")
        case "QUIT": throw quit(line, reply: "221 2.0.0 \(serverName) closes the connection")
        case "MAIL", "RCPT", "DATA", "BDAT", "AUTH", "VRFY", "EXPN", "ETRN":
            return .line("530 5.7.0 Must issue a STARTTLS command first")
        default: return .line("500 5.5.1 Command not recognized")
        }
    }
}

/// The client side of SMTP (RFC 3207) and LMTP (RFC 2033).
struct SMTPClient: ProtocolSide {
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

    func validate() throws(StartTLSError) {
        try check(clientName, "the client's name", allowsSpaces: false)
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        let result = replies.take(from: &input)
        guard let reply = try result.reply(for: self) else { return nil }
        return try receive(reply)
    }

    private mutating func receive(_ reply: CodedReply) throws(StartTLSError) -> DialogueAction {
        switch state {
        case .greeting:
            guard reply.code == "220" else { throw refusedConnection(reply.line) }
            state = .hello
            return .line("\(isLMTP ? "LHLO" : "EHLO") \(clientName)")
        case .hello: return try receiveCapabilities(reply)
        case .startTLS:
            guard reply.code == "220" else { throw refused(reply.line) }
            return .startTLS([])
        }
    }

    private mutating func receiveCapabilities(_ reply: CodedReply) throws(StartTLSError) -> DialogueAction {
        switch reply.code {
        case "250":
            // The first line contains the server's name.
            guard reply.texts.dropFirst().contains(where: { $0.keyword == "STARTTLS" }) else { throw notOffered(reply.line) }
            state = .startTLS
            return .line("STARTTLS")
        // A server without extensions rejects the command.
        case "500", "502", "504", "550": throw notOffered(reply.line)
        default: throw refusedConnection(reply.line)
        }
    }
}

/// The server side of SMTP and LMTP. Other commands are rejected until TLS has started (RFC 3207, section 4).
struct SMTPServer: ProtocolSide {
    let isLMTP: Bool
    /// The text of the greeting. Its first word is the server's name.
    let greeting: String
    let capabilities: [String]

    var name: String { isLMTP ? "LMTP" : "SMTP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "421 4.7.0 Too much data before STARTTLS") }

    private var serverName: String { greeting.words.first ?? "localhost" }

    func validate() throws(StartTLSError) {
        try check(greeting, "the greeting")
        for capability in capabilities { try check(capability, "a capability") }
    }

    mutating func start() -> DialogueAction { .line("220 \(greeting)") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        let hasParameters = line.words.count > 1
        switch line.keyword {
        case isLMTP ? "LHLO" : "EHLO": return hasParameters ? reply() : .line("501 5.5.4 A host name is required")
        case "STARTTLS":
            guard !hasParameters else { return .line("501 5.5.4 STARTTLS has no parameters") }
            return .startTLS([UInt8](line: "220 2.0.0 Ready to start TLS"))
        case "NOOP": return .line("250 2.0.0 OK")
        case "QUIT": throw loggedOut(line, reply: "221 2.0.0 \(serverName) closing connection")
        // The bytes of the chunk would be mistaken for commands.
        case "BDAT": throw unexpected(line, reply: [UInt8](line: "421 4.7.0 BDAT is not accepted before STARTTLS"))
        case "EHLO", "LHLO": return .line("500 5.5.1 Command not recognized")
        default: return .line("530 5.7.0 Must issue a STARTTLS command first")
        }
    }

    private func reply() -> DialogueAction {
        .lines(([serverName] + capabilities).map { "250-\($0)" } + ["250 STARTTLS"])
    }
}

/// The client side of ManageSieve (RFC 5804, section 2.2).
struct ManageSieveClient: Conversation {
    private var state = State.greeting(offersTLS: false)
    /// The start of a response whose literal has not arrived.
    private var pending: (text: String, literalLength: Int)?

    private enum State {
        /// The server lists its capabilities before its first OK.
        case greeting(offersTLS: Bool)
        case startTLS
    }

    var name: String { "ManageSieve" }
    var isClient: Bool { true }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let response = try response(&input) else { return nil }
        switch (state, response.words.first?.uppercased()) {
        case (.greeting(offersTLS: true), "OK"):
            state = .startTLS
            return .line("STARTTLS")
        case (.greeting, "OK"): throw notOffered(response)
        case (.greeting, "NO"), (.greeting, "BYE"): throw refusedConnection(response)
        case (.greeting, "\"STARTTLS\""): state = .greeting(offersTLS: true)
        case (.greeting, _): guard response.hasPrefix("\"") || response.hasPrefix("{") else { throw unexpected(response) }
        case (.startTLS, "OK"): return .startTLS([])
        case (.startTLS, "NO"), (.startTLS, "BYE"): throw refused(response)
        case (.startTLS, _): throw unexpected(response)
        }
        return .continue
    }

    /// Removes a line, and the literals and lines that continue it. Returns the line.
    private mutating func response(_ input: inout MessageInput) throws(StartTLSError) -> String? {
        while true {
            if let (text, length) = pending {
                guard input.take(length) != nil else { return nil }
                pending = (text, 0)
            }
            guard let line = input.line() else { return nil }
            let text = pending?.text ?? line
            pending = nil
            guard let length = try literalLength(in: line) else { return text }
            pending = (text, length)
        }
    }

    /// Returns the length of the literal that a line announces at its end, such as `{12}`.
    private func literalLength(in line: String) throws(StartTLSError) -> Int? {
        guard line.hasSuffix("}"), let start = line.lastIndex(of: "{") else { return nil }
        guard let length = Int(line[line.index(after: start)...].dropLast()), (0...MessageInput.limit).contains(length) else {
            throw unexpected(line)
        }
        return length
    }
}

/// The server side of ManageSieve. Commands that need TLS are rejected.
struct ManageSieveServer: Conversation {
    let greeting: String

    var name: String { "ManageSieve" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "BYE \"Too much data before STARTTLS\"") }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(greeting, "the greeting")
        guard !greeting.contains(where: { $0 == "\"" || $0 == "\\" }) else {
            throw error(.invalidParameter, "the greeting must not contain quotes and backslashes", line: greeting)
        }
        return capabilities
    }

    private var capabilities: ConversationAction {
        .lines([
            "\"IMPLEMENTATION\" \"\(greeting)\"", "\"SIEVE\" \"\"", "\"SASL\" \"\"", "\"STARTTLS\"", "\"VERSION\" \"1.0\"",
            "OK \"ready\"",
        ])
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        // The bytes of a literal would be mistaken for commands.
        guard !line.hasSuffix("}") else {
            throw unexpected(line, reply: [UInt8](line: "BYE \"Literals are not accepted before STARTTLS\""))
        }
        let words = line.words
        switch words.first?.uppercased() {
        case "STARTTLS" where words.count == 1: return .startTLS([UInt8](line: "OK \"Begin TLS negotiation now\""))
        case "CAPABILITY": return capabilities
        case "NOOP": return .line("OK \"NOOP completed\"")
        case "LOGOUT": throw quit(line, reply: "OK \"Bye\"")
        case "AUTHENTICATE": return .line("NO (ENCRYPT-NEEDED) \"Use STARTTLS first\"")
        default: return .line("NO \"Use STARTTLS first\"")
        }
    }
}

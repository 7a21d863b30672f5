/// The client side of ManageSieve (RFC 5804, section 2.2).
struct ManageSieveClient: ProtocolSide {
    private var state = State.greeting(offersTLS: false)
    /// The first line of a response whose literal has not arrived completely, and the number of bytes that
    /// are still expected.
    private var pending: (line: String, literalLength: Int)?

    private enum State {
        /// The server lists its capabilities before its first OK.
        case greeting(offersTLS: Bool)
        case startTLS
    }

    var name: String { "ManageSieve" }
    var isClient: Bool { true }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let response = try response(&input) else { return nil }
        switch (state, response.keyword) {
        case (.greeting(let offersTLS), "OK"):
            guard offersTLS else { throw notOffered(response) }
            state = .startTLS
            return .line("STARTTLS")
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
            if let (line, length) = pending {
                guard input.take(length) != nil else { return nil }
                pending = (line, 0)
            }
            guard let line = input.line() else { return nil }
            let first = pending?.line ?? line
            pending = nil
            guard let length = try literalLength(in: line) else { return first }
            pending = (first, length)
        }
    }

    /// Returns the length of the literal that a line announces at its end, such as `{12}`: a 32-bit number
    /// without a sign (RFC 5804, section 4).
    private func literalLength(in line: String) throws(StartTLSError) -> Int? {
        guard line.hasSuffix("}"), let start = line.lastIndex(of: "{") else { return nil }
        let digits = line[line.index(after: start)...].dropLast()
        guard digits.utf8.allSatisfy({ (48...57).contains($0) }), let length = UInt32(digits) else { throw unexpected(line) }
        guard length <= MessageInput.limit else { throw tooLong() }
        return Int(length)
    }
}

/// The server side of ManageSieve. Other commands are rejected until TLS has started.
struct ManageSieveServer: ProtocolSide {
    let implementation: String

    var name: String { "ManageSieve" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "BYE \"Too much data before STARTTLS\"") }

    func validate() throws(StartTLSError) {
        try check(implementation, "the name of the implementation")
        try check(implementation, "the name of the implementation", excludes: "\"\\")
    }

    mutating func start() -> DialogueAction { capabilities }

    private var capabilities: DialogueAction {
        .lines([
            "\"IMPLEMENTATION\" \"\(implementation)\"", "\"SIEVE\" \"\"", "\"SASL\" \"\"", "\"STARTTLS\"",
            "\"VERSION\" \"1.0\"", "OK \"ready\"",
        ])
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        // The bytes of a literal would be mistaken for commands.
        guard !line.hasSuffix("}") else {
            throw unexpected(line, reply: [UInt8](line: "BYE \"Literals are not accepted before STARTTLS\""))
        }
        switch line.keyword {
        case "STARTTLS" where line.words.count == 1: return .startTLS([UInt8](line: "OK \"Begin TLS negotiation now\""))
        case "CAPABILITY": return capabilities
        case "NOOP": return replyToNoop(line)
        case "LOGOUT": throw loggedOut(line, reply: "OK \"Bye\"")
        case "AUTHENTICATE": return .line("NO (ENCRYPT-NEEDED) \"Use STARTTLS first\"")
        default: return .line("NO \"Use STARTTLS first\"")
        }
    }

    /// The reply repeats the quoted string of the command, if any (RFC 5804, section 2.13).
    private func replyToNoop(_ line: String) -> DialogueAction {
        let parts = line.split(separator: "\"", omittingEmptySubsequences: false)
        guard parts.count == 3, parts[2].isEmpty, !parts[1].utf8.contains(UInt8(ascii: "\\")) else { return .line("OK \"Done\"") }
        return .line("OK (TAG {\(parts[1].utf8.count)}\r\n\(parts[1])) \"Done\"")
    }
}

/// The client side of IMAP (RFC 9051, section 6.2.1).
struct IMAPClient: Conversation {
    private var state = State.greeting

    private enum State {
        case greeting
        case capability(offersTLS: Bool)
        case startTLS
    }

    var name: String { "IMAP" }
    var isClient: Bool { true }

    /// A server may send untagged responses at any time.
    func allows(following rest: ArraySlice<UInt8>) -> Bool {
        rest.split(separator: 10).allSatisfy { $0.first == UInt8(ascii: "*") }
    }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words
        let second = words.dropFirst().first?.uppercased()
        if words.first == "*", second == "BYE" { throw refusedConnection(line) }
        switch (state, words.first) {
        case (.greeting, _): return try greet(line, words.first, second)
        case (.capability, "*"):
            let offersTLS = words.contains { $0.matches("STARTTLS") }
            if second == "CAPABILITY" { state = .capability(offersTLS: offersTLS) }
        case (.capability(offersTLS: true), "a1") where second == "OK": return startTLS()
        case (.capability, "a1"): throw notOffered(line)
        case (.startTLS, "*"): break
        case (.startTLS, "a2") where second == "OK": return .startTLS([])
        case (.startTLS, "a2"): throw refused(line)
        case (.capability, _), (.startTLS, _): throw unexpected(line)
        }
        return .continue
    }

    private mutating func greet(_ line: String, _ first: String?, _ second: String?) throws(StartTLSError) -> ConversationAction {
        if first == "*", second == "PREAUTH" {
            throw error(
                .alreadyAuthenticated, "the server considers the connection authenticated, so TLS is no longer possible",
                line: line)
        }
        guard first == "*", second == "OK" else { throw unexpected(line) }
        guard let offers = Self.capabilities(inGreeting: line) else {
            state = .capability(offersTLS: false)
            return .line("a1 CAPABILITY")
        }
        guard offers.contains(where: { $0.matches("STARTTLS") }) else { throw notOffered(line) }
        return startTLS()
    }

    private mutating func startTLS() -> ConversationAction {
        state = .startTLS
        return .line("a2 STARTTLS")
    }

    /// Returns the capabilities in a greeting such as `* OK [CAPABILITY IMAP4rev1 STARTTLS] ready`.
    private static func capabilities(inGreeting line: String) -> [String]? {
        let code = line.dropFirst("* OK ".count)
        guard code.startsWith(keyword: "[CAPABILITY "), let end = code.firstIndex(of: "]") else { return nil }
        return Array(String(code[..<end].dropFirst()).words.dropFirst())
    }
}

/// The server side of IMAP. Commands that need TLS are rejected.
struct IMAPServer: Conversation {
    let greeting: String
    let capabilities: [String]

    var name: String { "IMAP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "* BYE Too much data before STARTTLS") }

    private var offers: String { (["IMAP4rev1"] + capabilities + ["STARTTLS", "LOGINDISABLED"]).joined(separator: " ") }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(greeting, "the greeting")
        for capability in capabilities { try check(capability, "a capability", allowsSpaces: false) }
        return .line("* OK [CAPABILITY \(offers)] \(greeting)")
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        // The bytes of a literal would be mistaken for commands.
        guard !line.hasSuffix("}") else {
            throw unexpected(line, reply: [UInt8](line: "* BYE Literals are not accepted before STARTTLS"))
        }
        let words = line.words
        guard words.count >= 2, let tag = words.first, tag != "*", tag != "+" else {
            return .line("* BAD A tag and a command are expected")
        }
        return try reply(to: words[1].uppercased(), tag, line, hasParameters: words.count > 2)
    }

    private func reply(
        to command: String, _ tag: String, _ line: String, hasParameters: Bool
    ) throws(StartTLSError) -> ConversationAction {
        switch command {
        case "STARTTLS" where !hasParameters: return .startTLS([UInt8](line: "\(tag) OK Begin TLS negotiation now"))
        case "CAPABILITY": return .lines(["* CAPABILITY \(offers)", "\(tag) OK CAPABILITY completed"])
        case "NOOP": return .line("\(tag) OK NOOP completed")
        case "ID": return .lines(["* ID NIL", "\(tag) OK ID completed"])
        case "LOGOUT": throw quit(line, reply: "* BYE Logging out\r\n\(tag) OK LOGOUT completed")
        case "LOGIN", "AUTHENTICATE": return .line("\(tag) NO [PRIVACYREQUIRED] Use STARTTLS first")
        default: return .line("\(tag) BAD Use STARTTLS first")
        }
    }
}

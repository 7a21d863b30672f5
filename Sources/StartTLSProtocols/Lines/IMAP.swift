/// The client side of IMAP (RFC 9051, section 6.2.1).
struct IMAPClient: ProtocolSide {
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

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        let words = line.words
        let second = words.dropFirst().first?.inUpperCase
        if words.first == "*", second == "BYE" { throw refusedConnection(line) }
        switch (state, words.first) {
        case (.greeting, "*"): return try receiveGreeting(line, second)
        case (.capability, "*"):
            if second == "CAPABILITY" { state = .capability(offersTLS: words.contains(keyword: "STARTTLS")) }
            return .continue
        case (.startTLS, "*"): return .continue
        case (.capability(let offersTLS), "a1"):
            guard offersTLS, second == "OK" else { throw notOffered(line) }
            return startTLS()
        case (.startTLS, "a2"):
            if second == "NO" || second == "BAD" { throw refused(line) }
            guard second == "OK" else { throw unexpected(line) }
            return .startTLS([])
        case (.greeting, _), (.capability, _), (.startTLS, _): throw unexpected(line)
        }
    }

    private mutating func receiveGreeting(_ line: String, _ condition: String?) throws(StartTLSError) -> DialogueAction {
        if condition == "PREAUTH" {
            throw error(
                .alreadyAuthenticated, "the server reports an authenticated connection, so TLS is no longer possible", line: line)
        }
        guard condition == "OK" else { throw unexpected(line) }
        guard let offers = Self.capabilities(inGreeting: line) else {
            state = .capability(offersTLS: false)
            return .line("a1 CAPABILITY")
        }
        guard offers.contains(keyword: "STARTTLS") else { throw notOffered(line) }
        return startTLS()
    }

    private mutating func startTLS() -> DialogueAction {
        state = .startTLS
        return .line("a2 STARTTLS")
    }

    /// Returns the capabilities in a greeting such as `* OK [CAPABILITY IMAP4rev1 STARTTLS] ready`.
    private static func capabilities(inGreeting line: String) -> [String]? {
        let code = line.words.dropFirst(2).joined(separator: " ")
        guard code.startsWith(keyword: "[CAPABILITY "), let end = code.firstIndex(of: "]") else { return nil }
        return Array(String(code[..<end]).words.dropFirst())
    }
}

/// The server side of IMAP. Other commands are rejected until TLS has started.
struct IMAPServer: ProtocolSide {
    let greeting: String
    let capabilities: [String]

    var name: String { "IMAP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "* BYE Too much data before STARTTLS") }

    /// The tag and the command.
    func quotablePart(of message: String) -> String? { message.words.prefix(2).joined(separator: " ") }

    private var offers: String { (["IMAP4rev1"] + capabilities + ["STARTTLS", "LOGINDISABLED"]).joined(separator: " ") }

    func validate() throws(StartTLSError) {
        try check(greeting, "the greeting")
        for capability in capabilities {
            try check(capability, "a capability", allowsSpaces: false)
            try check(capability, "a capability", excludes: "]")
        }
    }

    mutating func start() -> DialogueAction { .line("* OK [CAPABILITY \(offers)] \(greeting)") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        // The bytes of a literal would be mistaken for commands.
        guard !line.hasSuffix("}") else {
            throw unexpected(line, reply: [UInt8](line: "* BYE Literals are not accepted before STARTTLS"))
        }
        let words = line.words
        guard words.count >= 2, let tag = words.first, Self.isTag(tag) else {
            return .line("* BAD A tag and a command are expected")
        }
        return try reply(to: words[1].inUpperCase, tag, line, hasParameters: words.count > 2)
    }

    private func reply(
        to command: String, _ tag: String, _ line: String, hasParameters: Bool
    ) throws(StartTLSError) -> DialogueAction {
        switch command {
        case "STARTTLS" where !hasParameters: return .startTLS([UInt8](line: "\(tag) OK Begin TLS negotiation now"))
        case "CAPABILITY": return .lines(["* CAPABILITY \(offers)", "\(tag) OK CAPABILITY completed"])
        case "NOOP": return .line("\(tag) OK NOOP completed")
        case "ID": return .lines(["* ID NIL", "\(tag) OK ID completed"])
        case "LOGOUT": throw loggedOut(line, reply: "* BYE Logging out\r\n\(tag) OK LOGOUT completed")
        case "LOGIN", "AUTHENTICATE": return .line("\(tag) NO [PRIVACYREQUIRED] Use STARTTLS first")
        default: return .line("\(tag) BAD Use STARTTLS first")
        }
    }

    /// Whether the text may be repeated in replies: printable ASCII without the characters that RFC 9051,
    /// section 9, excludes from tags.
    private static func isTag(_ text: String) -> Bool {
        text.utf8.count <= 64 && text.utf8.allSatisfy { (33...126).contains($0) && !"(){%*\"\\+".utf8.contains($0) }
    }
}

/// The client side of POP3 (RFC 2595, section 4).
struct POP3Client: Conversation {
    private var state = State.greeting

    private enum State {
        case greeting
        case capabilities
        /// Inside the list of capabilities.
        case list(offersTLS: Bool)
        case startTLS
    }

    var name: String { "POP3" }
    var isClient: Bool { true }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        switch state {
        case .greeting: return try greet(line)
        case .capabilities: return try beginList(line)
        case .list(let offersTLS): return try continueList(line, offersTLS)
        case .startTLS:
            guard Self.isOK(line) else { throw line.startsWith(keyword: "-ERR") ? refused(line) : unexpected(line) }
            return .startTLS([])
        }
    }

    private mutating func greet(_ line: String) throws(StartTLSError) -> ConversationAction {
        guard Self.isOK(line) else { throw line.startsWith(keyword: "-ERR") ? refusedConnection(line) : unexpected(line) }
        state = .capabilities
        return .line("CAPA")
    }

    private mutating func beginList(_ line: String) throws(StartTLSError) -> ConversationAction {
        // A server that does not list its capabilities may still support STLS.
        if line.startsWith(keyword: "-ERR") { return startTLS() }
        guard Self.isOK(line) else { throw unexpected(line) }
        state = .list(offersTLS: false)
        return .continue
    }

    private mutating func continueList(_ line: String, _ offersTLS: Bool) throws(StartTLSError) -> ConversationAction {
        guard line == "." else {
            state = .list(offersTLS: offersTLS || line.words.first?.matches("STLS") == true)
            return .continue
        }
        guard offersTLS else { throw notOffered() }
        return startTLS()
    }

    private mutating func startTLS() -> ConversationAction {
        state = .startTLS
        return .line("STLS")
    }

    private static func isOK(_ line: String) -> Bool { line == "+OK" || line.startsWith(keyword: "+OK ") }
}

/// The server side of POP3. Commands that need TLS are rejected.
struct POP3Server: Conversation {
    let greeting: String
    let capabilities: [String]

    var name: String { "POP3" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "-ERR Too much data before STLS") }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(greeting, "the greeting")
        for capability in capabilities { try check(capability, "a capability") }
        return .line("+OK \(greeting)")
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words
        switch words.first?.uppercased() {
        case "CAPA": return .lines(["+OK Capability list follows"] + capabilities + ["STLS", "."])
        case "STLS" where words.count == 1: return .startTLS([UInt8](line: "+OK Begin TLS negotiation"))
        case "QUIT": throw quit(line, reply: "+OK Bye")
        case "USER", "PASS", "APOP", "AUTH": return .line("-ERR Use STLS first")
        default: return .line("-ERR Unknown command")
        }
    }
}

/// The client side of NNTP (RFC 4642).
struct NNTPClient: Conversation {
    private var state = State.greeting

    private enum State {
        case greeting
        case capabilities
        /// Inside the list of capabilities.
        case list(offersTLS: Bool)
        case startTLS
    }

    var name: String { "NNTP" }
    var isClient: Bool { true }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        switch state {
        case .greeting:
            guard ["200", "201"].contains(line.prefix(3)) else { throw refusedConnection(line) }
            state = .capabilities
            return .line("CAPABILITIES")
        case .capabilities: return try beginList(line)
        case .list(let offersTLS): return try continueList(line, offersTLS)
        case .startTLS:
            guard line.hasPrefix("382") else { throw line.hasPrefix("500") ? notOffered(line) : refused(line) }
            return .startTLS([])
        }
    }

    private mutating func beginList(_ line: String) throws(StartTLSError) -> ConversationAction {
        // A server that does not list its capabilities may still support STARTTLS (RFC 3977, appendix A).
        if line.hasPrefix("500") { return startTLS() }
        guard line.hasPrefix("101") else { throw unexpected(line) }
        state = .list(offersTLS: false)
        return .continue
    }

    private mutating func continueList(_ line: String, _ offersTLS: Bool) throws(StartTLSError) -> ConversationAction {
        guard line == "." else {
            state = .list(offersTLS: offersTLS || line.words.first?.matches("STARTTLS") == true)
            return .continue
        }
        guard offersTLS else { throw notOffered() }
        return startTLS()
    }

    private mutating func startTLS() -> ConversationAction {
        state = .startTLS
        return .line("STARTTLS")
    }
}

/// The server side of NNTP. Commands that need TLS are rejected.
struct NNTPServer: Conversation {
    let greeting: String

    var name: String { "NNTP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "400 Too much data before STARTTLS") }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(greeting, "the greeting")
        return .line("201 \(greeting)")
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words.map { $0.uppercased() }
        switch words.first {
        case "STARTTLS" where words.count == 1: return .startTLS([UInt8](line: "382 Continue with TLS negotiation"))
        case "CAPABILITIES": return .lines(["101 Capability list follows", "VERSION 2", "STARTTLS", "."])
        case "MODE" where words.count == 2 && words[1] == "READER": return .line("201 \(greeting)")
        case "QUIT": throw quit(line, reply: "205 Connection closing")
        default: return .line("483 Use STARTTLS first")
        }
    }
}

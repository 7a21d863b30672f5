/// The client side of NNTP (RFC 4642, section 2.2).
struct NNTPClient: ProtocolSide {
    private var state = State.greeting
    private var capabilities = CapabilityList(of: "STARTTLS")

    private enum State {
        case greeting
        case capabilities
        /// Inside the list of capabilities.
        case list
        case startTLS
    }

    var name: String { "NNTP" }
    var isClient: Bool { true }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        guard state == .list || Self.isResponse(line) else { throw unexpected(line) }
        switch (state, line.words.first) {
        case (.list, _):
            guard capabilities.isComplete(with: line) else { return .continue }
            guard capabilities.offersTLS else { throw notOffered() }
            return startTLS()
        case (.greeting, "200"), (.greeting, "201"):
            state = .capabilities
            return .line("CAPABILITIES")
        case (.capabilities, "101"): state = .list
        // A server that does not list its capabilities may still support STARTTLS (RFC 3977, appendix A).
        case (.capabilities, "500"): return startTLS()
        case (.startTLS, "382"): return .startTLS([])
        case (.startTLS, "500"): throw notOffered(line)
        case (.greeting, _), (.capabilities, _): throw refusedConnection(line)
        case (.startTLS, _): throw refused(line)
        }
        return .continue
    }

    /// Whether the line starts with a code of three digits (RFC 3977, section 3.2).
    private static func isResponse(_ line: String) -> Bool {
        guard let code = line.words.first?.utf8 else { return false }
        return code.count == 3 && code.allSatisfy { (48...57).contains($0) }
    }

    private mutating func startTLS() -> DialogueAction {
        state = .startTLS
        return .line("STARTTLS")
    }
}

/// The server side of NNTP. Other commands are rejected until TLS has started.
struct NNTPServer: ProtocolSide {
    let greeting: String

    var name: String { "NNTP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "400 Too much data before STARTTLS") }

    func validate() throws(StartTLSError) { try check(greeting, "the greeting") }

    mutating func start() -> DialogueAction { .line("200 \(greeting)") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        let words = line.inUpperCase.words
        switch words.first {
        case "STARTTLS" where words.count == 1: return .startTLS([UInt8](line: "382 Continue with TLS negotiation"))
        case "CAPABILITIES": return .lines(["101 Capability list follows", "VERSION 2", "STARTTLS", "."])
        case "MODE" where words.count == 2 && words[1] == "READER": return .line("200 \(greeting)")
        case "QUIT": throw loggedOut(line, reply: "205 Connection closing")
        // The lines of the article, which follows immediately, would be mistaken for commands.
        case "TAKETHIS": throw unexpected(line, reply: [UInt8](line: "400 TAKETHIS is not accepted before STARTTLS"))
        default: return .line("483 Use STARTTLS first")
        }
    }
}

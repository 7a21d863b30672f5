/// The client side of POP3 (RFC 2595, section 4).
struct POP3Client: ProtocolSide {
    private var state = State.greeting
    private var capabilities = CapabilityList(of: "STLS")

    private enum State {
        case greeting
        case capabilities
        /// Inside the list of capabilities.
        case list
        case startTLS
    }

    var name: String { "POP3" }
    var isClient: Bool { true }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        switch (state, line.keyword) {
        case (.list, _):
            guard capabilities.isComplete(with: line) else { return .continue }
            guard capabilities.offersTLS else { throw notOffered() }
            return startTLS()
        case (.greeting, "+OK"):
            state = .capabilities
            return .line("CAPA")
        case (.greeting, "-ERR"): throw refusedConnection(line)
        case (.capabilities, "+OK"): state = .list
        // A server that does not list its capabilities may still support STLS.
        case (.capabilities, "-ERR"): return startTLS()
        case (.startTLS, "+OK"): return .startTLS([])
        case (.startTLS, "-ERR"): throw refused(line)
        case (.greeting, _), (.capabilities, _), (.startTLS, _): throw unexpected(line)
        }
        return .continue
    }

    private mutating func startTLS() -> DialogueAction {
        state = .startTLS
        return .line("STLS")
    }
}

/// The server side of POP3. Other commands are rejected until TLS has started.
struct POP3Server: ProtocolSide {
    let greeting: String
    let capabilities: [String]

    var name: String { "POP3" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "-ERR Too much data before STLS") }

    func validate() throws(StartTLSError) {
        try check(greeting, "the greeting")
        // Clients would take text in angle brackets for the timestamp of APOP.
        try check(greeting, "the greeting", excludes: "<")
        for capability in capabilities {
            try check(capability, "a capability")
            // A single dot would end the list.
            if capability.utf8.first == UInt8(ascii: ".") {
                throw error(.invalidParameter, "a capability must not start with a dot")
            }
        }
    }

    mutating func start() -> DialogueAction { .line("+OK \(greeting)") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        switch line.keyword {
        case "CAPA": return .lines(["+OK Capability list follows"] + capabilities + ["STLS", "."])
        case "STLS" where line.words.count == 1: return .startTLS([UInt8](line: "+OK Begin TLS negotiation"))
        case "QUIT": throw loggedOut(line, reply: "+OK Bye")
        case "USER", "PASS", "APOP", "AUTH": return .line("-ERR Use STLS first")
        default: return .line("-ERR Unknown command")
        }
    }
}

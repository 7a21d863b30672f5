/// The client side of FTP (RFC 4217, section 4).
struct FTPClient: Conversation {
    private var state = State.greeting
    private var replies = CodedReplyReader(allowsLinesWithoutCode: true)

    private enum State {
        case greeting
        case startTLS
    }

    var name: String { "FTP" }
    var isClient: Bool { true }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let reply = try replies.take(from: &input, for: self) else { return nil }
        switch (state, reply.code) {
        // The greeting may be preceded by an announcement of a delay (RFC 959, section 5.4).
        case (.greeting, "120"): return .continue
        case (.greeting, "220"):
            state = .startTLS
            return .line("AUTH TLS")
        case (.greeting, _): throw refusedConnection(reply.line)
        case (.startTLS, "234"): return .startTLS([])
        case (.startTLS, "500"), (.startTLS, "502"), (.startTLS, "504"), (.startTLS, "530"): throw notOffered(reply.line)
        case (.startTLS, _): throw refused(reply.line)
        }
    }
}

/// The server side of FTP. Commands that need TLS are rejected.
struct FTPServer: Conversation {
    let greeting: String

    var name: String { "FTP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "421 Too much data before AUTH TLS") }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(greeting, "the greeting")
        return .line("220 \(greeting)")
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words.map { $0.uppercased() }
        switch words.first {
        case "AUTH":
            guard words.count == 2, words[1] == "TLS" || words[1] == "TLS-C" else {
                return .line("504 AUTH TLS is the only supported mechanism")
            }
            return .startTLS([UInt8](line: "234 AUTH TLS successful"))
        case "FEAT": return .lines(["211-Features:", " AUTH TLS", "211 End"])
        case "NOOP": return .line("200 OK")
        case "QUIT": throw quit(line, reply: "221 Goodbye")
        default: return .line("530 Use AUTH TLS first")
        }
    }
}

/// The client side of FTP (RFC 4217, section 4).
struct FTPClient: ProtocolSide {
    private var hasGreeting = false
    private var replies = CodedReplyReader(allowsLinesWithoutCode: true)

    var name: String { "FTP" }
    var isClient: Bool { true }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        let result = replies.take(from: &input)
        guard let reply = try result.reply(for: self) else { return nil }
        return try receive(reply)
    }

    private mutating func receive(_ reply: CodedReply) throws(StartTLSError) -> DialogueAction {
        switch (hasGreeting, reply.code) {
        // The greeting may be preceded by an announcement of a delay (RFC 959, section 5.4).
        case (false, "120"): return .continue
        case (false, "220"):
            hasGreeting = true
            return .line("AUTH TLS")
        case (false, _): throw refusedConnection(reply.line)
        case (true, "234"): return .startTLS([])
        case (true, "500"), (true, "502"), (true, "504"), (true, "530"): throw notOffered(reply.line)
        case (true, _): throw refused(reply.line)
        }
    }
}

/// The server side of FTP. Other commands are rejected until TLS has started.
struct FTPServer: ProtocolSide {
    let greeting: String

    var name: String { "FTP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "421 Too much data before AUTH TLS") }

    func validate() throws(StartTLSError) { try check(greeting, "the greeting") }

    mutating func start() -> DialogueAction { .line("220 \(greeting)") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        let words = line.inUpperCase.words
        switch words.first {
        case "AUTH":
            guard words.count == 2, words[1] == "TLS" || words[1] == "TLS-C" else {
                return .line("504 AUTH TLS is the only supported mechanism")
            }
            return .startTLS([UInt8](line: "234 AUTH TLS successful"))
        case "FEAT": return .lines(["211-Features:", " AUTH TLS", " PBSZ", " PROT", "211 End"])
        case "NOOP": return .line("200 OK")
        case "QUIT": throw loggedOut(line, reply: "221 Goodbye")
        default: return .line("530 Use AUTH TLS first")
        }
    }
}

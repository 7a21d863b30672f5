/// The client side of IRC (the `tls` extension of IRCv3).
struct IRCClient: Conversation {
    var name: String { "IRC" }
    var isClient: Bool { true }

    /// A server sends notices about the connection at any time.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { true }

    mutating func start() -> ConversationAction { .line("STARTTLS") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words
        let command = (line.hasPrefix(":") ? words.dropFirst() : words[...]).first?.uppercased()
        switch command {
        case "670": return .startTLS([])
        case "691": throw refused(line)
        case "421", "451": throw notOffered(line)
        case "ERROR": throw refusedConnection(line)
        case "PING": return .line("PONG\(line.drop { $0 != " " })")
        case "NOTICE", "020": return .continue
        default: throw unexpected(line)
        }
    }
}

/// The server side of IRC. Registration without TLS is rejected.
struct IRCServer: Conversation {
    let serverName: String

    var name: String { "IRC" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "ERROR :Too much data before STARTTLS") }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try check(serverName, "the server's name", allowsSpaces: false)
        return .continue
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        let words = line.words
        switch words.first?.uppercased() {
        case "STARTTLS":
            return .startTLS([UInt8](line: ":\(serverName) 670 * :STARTTLS successful, proceed with TLS handshake"))
        case "CAP" where words.count >= 2 && words[1].matches("LS"): return .line(":\(serverName) CAP * LS :tls")
        case "CAP" where words.count >= 3 && words[1].matches("REQ"):
            return .line(":\(serverName) CAP * NAK\(line.dropFirst(7))")
        case "CAP": return .continue
        case "PING": return .line(":\(serverName) PONG \(serverName)\(line.dropFirst(4))")
        case "QUIT": throw quit(line, reply: "ERROR :Closing link")
        case nil: return .continue
        default: return .line(":\(serverName) 451 * :Use STARTTLS first")
        }
    }
}

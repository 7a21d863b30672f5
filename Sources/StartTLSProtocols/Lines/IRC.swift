/// The client side of IRC (the `tls` extension of IRCv3).
struct IRCClient: ProtocolSide {
    var name: String { "IRC" }
    var isClient: Bool { true }

    /// A server sends notices about the connection at any time.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { true }

    mutating func start() -> DialogueAction { .line("STARTTLS") }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        // The name of the server may precede the command.
        let words = line.hasPrefix(":") ? line.words.dropFirst() : line.words[...]
        switch words.first?.inUpperCase {
        case "670": return .startTLS([])
        case "691": throw refused(line)
        case "421", "451":
            throw error(
                .notOffered,
                "the server does not offer STARTTLS, or an attacker removed the offer: connect with TLS from the start, which most IRC servers support",
                line: line)
        case "ERROR": throw refusedConnection(line)
        // A reply to PING could arrive when the server already expects TLS.
        case "NOTICE", "020", "439", "PING": return .continue
        // Empty messages are ignored (RFC 1459, section 2.3).
        case nil where line.isEmpty: return .continue
        default: throw unexpected(line)
        }
    }
}

/// The server side of IRC. Registration without TLS is rejected.
struct IRCServer: ProtocolSide {
    let serverName: String

    var name: String { "IRC" }
    var isClient: Bool { false }
    var farewell: [UInt8] { [UInt8](line: "ERROR :Too much data before STARTTLS") }

    func validate() throws(StartTLSError) { try check(serverName, "the server's name", allowsSpaces: false) }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.line() else { return nil }
        let parameters = line.words.dropFirst().joined(separator: " ")
        switch line.keyword {
        case "STARTTLS":
            return .startTLS([UInt8](line: ":\(serverName) 670 * :STARTTLS successful, proceed with TLS handshake"))
        case "CAP": return replyToCapabilities(parameters)
        case "PING": return .line(":\(serverName) PONG \(serverName) \(parameters)")
        case "QUIT": throw loggedOut(line, reply: "ERROR :Closing link")
        case nil: return .continue
        default: return .line(":\(serverName) 451 * :Use STARTTLS first")
        }
    }

    private func replyToCapabilities(_ parameters: String) -> DialogueAction {
        switch parameters.keyword {
        case "LS": return .line(":\(serverName) CAP * LS :tls")
        case "REQ":
            let names = parameters.words.dropFirst().joined(separator: " ")
            let requested = names.hasPrefix(":") ? String(names.dropFirst()) : names
            return .line(":\(serverName) CAP * \(requested.words == ["tls"] ? "ACK" : "NAK") :\(requested)")
        default: return .continue
        }
    }
}

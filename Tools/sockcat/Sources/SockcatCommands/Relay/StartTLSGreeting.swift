internal import AsyncSockets

/// The first message of a server, in protocols in which the server sends first.
enum StartTLSGreeting: Equatable, Sendable {
    /// Lines that begin with a three-digit code (SMTP, LMTP, FTP, NNTP), with "-" after the code except in
    /// the last line.
    case code(Int)
    /// A single line (IMAP, POP3).
    case line(String)
    /// Capabilities, followed by "OK" (ManageSieve).
    case capabilities

    /// `nil` if the client sends first.
    init?(_ name: StartTLSName) {
        switch name {
        case .smtp, .lmtp, .ftp: self = .code(220)
        case .nntp: self = .code(200)
        case .imap: self = .line("* OK")
        case .pop3: self = .line("+OK")
        case .sieve: self = .capabilities
        case .xmpp, .xmppServer, .postgres, .ldap, .irc, .mysql: return nil
        }
    }

    /// A greeting for a client, if the greeting of the target was already read.
    var text: String {
        switch self {
        case .code(let code): "\(code) ready\r\n"
        case .line(let start): "\(start) ready\r\n"
        case .capabilities: "\"IMPLEMENTATION\" \"sockcat\"\r\nOK\r\n"
        }
    }

    /// Reads the greeting of the target, if the client has already received a greeting.
    ///
    /// - Throws: A failure if the server does not accept clients.
    nonisolated(nonsending) func discard(from server: AsyncSocket) async throws {
        while let line = try await server.readLine(maxLength: 4096) {
            if isRefusal(line) { throw Failure("the target does not accept clients: \(line)", status: .connectFailed) }
            if isLast(line) { return }
        }
        throw Failure("the target closed the connection without a greeting", status: .connectionLost)
    }

    private func isRefusal(_ line: String) -> Bool {
        switch self {
        case .code: !line.hasPrefix("2")
        case .line(let start): !line.hasPrefix(start)
        case .capabilities: line.hasPrefix("NO") || line.hasPrefix("BYE")
        }
    }

    private func isLast(_ line: String) -> Bool {
        switch self {
        case .code: line.dropFirst(3).first != "-"
        case .line: true
        case .capabilities: line.hasPrefix("OK")
        }
    }
}

internal import AsyncSockets
internal import FoundationEssentials

/// Replies to a mail client after the upgrade to TLS, and prints the lines that the client sends.
struct MailService: Sendable {
    /// RFC 5321, section 4.5.3.2.7.
    static let idleTimeout = Duration.seconds(300)
    private static let maximumLineBytes = 8 << 10

    let socket: AsyncSocket
    let output: DescriptorWriter
    /// The time limit for each line, which a client cannot extend by sending single bytes.
    let lineTimeout: Duration?

    func run(_ session: any MailSession) async throws {
        var (session, log) = (session, MailLog())
        while let line = try await nextLine() {
            let text = log.text(of: line, isInMessage: session.isInMessage)
            try await output.write("\(socket.connectedAddress.text): \(text)\n")
            let reply = session.receive(line)
            if !reply.lines.isEmpty { try await socket.write(reply.text) }
            if reply.isLast { return }
        }
        if session.isInMessage { throw Failure("the client closed the connection inside a message", status: .connectionLost) }
    }

    /// Returns `nil` if the client has closed the connection. Only CR LF terminates a line.
    private func nextLine() async throws -> MailLine? {
        do {
            return MailLine(
                try await socket.read(until: AsyncSocket.crlf, maxLength: Self.maximumLineBytes, timeout: lineTimeout).dropLast(2)
            )
        } catch let error as AsyncSocketError where error.code == .closedByPeer {
            guard let rest = try? await socket.read(maxLength: 1), !rest.isEmpty else { return nil }
            throw Failure(
                "the client closed the connection in the middle of a line (CR LF ends a line, LF alone does not)",
                status: .connectionLost)
        }
    }
}

extension StartTLSName {
    /// The protocols of `--mail`.
    static let mailProtocols: [StartTLSName] = [.smtp, .lmtp, .imap, .pop3]

    /// Returns the session of a mail protocol after the upgrade, or `nil` for other protocols.
    func mailSession(host: String) -> (any MailSession)? {
        switch self {
        case .smtp: SMTPSession(isLMTP: false, name: host)
        case .lmtp: SMTPSession(isLMTP: true, name: host)
        case .imap: IMAPSession()
        case .pop3: POP3Session()
        case .sieve, .ftp, .xmpp, .xmppServer, .postgres, .mysql, .ldap, .irc, .nntp: nil
        }
    }
}

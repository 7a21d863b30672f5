/// The server side of a protocol whose connections start in plaintext.
///
/// Use it with `AsyncSocket.acceptStartTLS(as:settings:)` or `StartTLSDialogue`. The dialogue replies to the
/// commands that clients send before the upgrade, rejects commands that need TLS, and starts TLS when the
/// client requests it. Everything that the client sent before the upgrade is discarded.
public struct StartTLSServer: Sendable {
    let conversation: any Conversation

    private init(_ conversation: any Conversation) {
        self.conversation = conversation
    }

    /// SMTP (RFC 3207). After the upgrade, wait for the client's next EHLO.
    ///
    /// - Parameters:
    ///   - greeting: The text of the greeting, such as `mail.example.org ESMTP`. Its first word is the
    ///     server's name.
    ///   - capabilities: Further capabilities in the reply to EHLO, such as `8BITMIME`.
    public static func smtp(greeting: String, capabilities: [String] = []) -> Self {
        Self(SMTPServer(isLMTP: false, greeting: greeting, capabilities: capabilities))
    }

    /// LMTP (RFC 2033). See `smtp(greeting:capabilities:)`.
    public static func lmtp(greeting: String, capabilities: [String] = []) -> Self {
        Self(SMTPServer(isLMTP: true, greeting: greeting, capabilities: capabilities))
    }

    /// IMAP (RFC 9051, section 6.2.1).
    ///
    /// - Parameters:
    ///   - greeting: The text of the greeting.
    ///   - capabilities: Capabilities in addition to `IMAP4rev1`, `STARTTLS` and `LOGINDISABLED`.
    public static func imap(greeting: String, capabilities: [String] = []) -> Self {
        Self(IMAPServer(greeting: greeting, capabilities: capabilities))
    }

    /// POP3 (RFC 2595).
    ///
    /// - Parameters:
    ///   - greeting: The text of the greeting. It must not contain a timestamp for APOP.
    ///   - capabilities: Capabilities in addition to `STLS`.
    public static func pop3(greeting: String, capabilities: [String] = []) -> Self {
        Self(POP3Server(greeting: greeting, capabilities: capabilities))
    }

    /// ManageSieve (RFC 5804). After the upgrade, send the capabilities again, without waiting for a command.
    ///
    /// - Parameter greeting: The name of the implementation.
    public static func manageSieve(greeting: String) -> Self { Self(ManageSieveServer(greeting: greeting)) }

    /// FTP with AUTH TLS (RFC 4217).
    ///
    /// - Parameter greeting: The text of the greeting.
    public static func ftp(greeting: String) -> Self { Self(FTPServer(greeting: greeting)) }

    /// XMPP for clients (RFC 6120, section 5). After the upgrade, wait for a new stream.
    ///
    /// - Parameter domain: The domain of the server's users.
    public static func xmpp(domain: String) -> Self { Self(XMPPServer(domain: domain, isServerToServer: false)) }

    /// XMPP between servers. See `xmpp(domain:)`.
    public static func xmppServer(domain: String) -> Self { Self(XMPPServer(domain: domain, isServerToServer: true)) }

    /// PostgreSQL. After the upgrade, wait for the startup message.
    public static var postgres: Self { postgres(acceptsDirectTLS: false) }

    /// PostgreSQL, optionally also with TLS from the first byte, as in PostgreSQL 17.
    ///
    /// - Parameter acceptsDirectTLS: Whether a client may start with its ClientHello. Set the application
    ///   protocols of the settings to `["postgresql"]`, so that no other protocol is mistaken for it.
    public static func postgres(acceptsDirectTLS: Bool) -> Self {
        Self(PostgreSQLServer(acceptsDirectTLS: acceptsDirectTLS))
    }

    /// MySQL and MariaDB. After the upgrade, wait for the handshake response in packet 2.
    ///
    /// - Parameter greeting: The server's first message. Its nonce must be new for each connection.
    public static func mysql(greeting: MySQLGreeting) -> Self { Self(MySQLServer(greeting: greeting)) }

    /// LDAP (RFC 4511, section 4.14).
    public static var ldap: Self { Self(LDAPServer()) }

    /// IRC, before registration.
    ///
    /// - Parameter serverName: The server's name, which starts its messages.
    public static func irc(serverName: String) -> Self { Self(IRCServer(serverName: serverName)) }

    /// NNTP (RFC 4642).
    ///
    /// - Parameter greeting: The text of the greeting.
    public static func nntp(greeting: String) -> Self { Self(NNTPServer(greeting: greeting)) }

    /// Another protocol, in lines. TLS starts after the last step.
    public static func script(_ steps: [StartTLSScriptStep]) -> Self { Self(Script(steps, isClient: false)) }
}

/// A protocol whose connections start in plaintext, with the parameters of its server side.
///
/// Use it with `AsyncSocket.acceptStartTLS(as:settings:)` or `StartTLSDialogue`. The dialogue replies to the
/// commands that clients send before the upgrade, rejects commands that need TLS, and starts TLS when the
/// client requests it. Everything that the client sent before the upgrade is discarded.
public struct StartTLSServer: Sendable {
    let makeSide: @Sendable () -> any ProtocolSide
    /// The application protocol that clients must offer in ALPN, if any.
    public let applicationProtocol: String?

    private init(_ side: any ProtocolSide, applicationProtocol: String? = nil) {
        self.init(applicationProtocol: applicationProtocol) { side }
    }

    private init(applicationProtocol: String? = nil, makeSide: @escaping @Sendable () -> any ProtocolSide) {
        self.makeSide = makeSide
        self.applicationProtocol = applicationProtocol
    }

    /// SMTP (RFC 3207, section 4), for submission on port 587. After the upgrade, wait for the client's next
    /// EHLO.
    ///
    /// A server that receives mail from the Internet on port 25 must not require TLS (RFC 3207, section 4).
    ///
    /// - Parameters:
    ///   - greeting: The text of the greeting, such as `mail.example.org ESMTP`. Its first word is the
    ///     server's name.
    ///   - capabilities: Further capabilities in the reply to EHLO, such as `8BITMIME`.
    public static func smtp(greeting: String, capabilities: [String] = []) -> Self {
        Self(SMTPServer(isLMTP: false, greeting: greeting, capabilities: capabilities))
    }

    /// LMTP (RFC 2033, section 4.3). See `smtp(greeting:capabilities:)`.
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

    /// POP3 (RFC 2595, section 4).
    ///
    /// - Parameters:
    ///   - greeting: The text of the greeting, without `<`, which would announce a timestamp for APOP.
    ///   - capabilities: Capabilities in addition to `STLS`.
    public static func pop3(greeting: String, capabilities: [String] = []) -> Self {
        Self(POP3Server(greeting: greeting, capabilities: capabilities))
    }

    /// ManageSieve (RFC 5804, section 2.2). After the upgrade, send the capabilities again, without waiting
    /// for a command.
    ///
    /// - Parameter greeting: The name of the implementation, which the first line of the greeting contains.
    public static func manageSieve(greeting: String) -> Self { Self(ManageSieveServer(implementation: greeting)) }

    /// FTP with AUTH TLS (RFC 4217, section 4).
    ///
    /// - Parameter greeting: The text of the greeting.
    public static func ftp(greeting: String) -> Self { Self(FTPServer(greeting: greeting)) }

    /// XMPP for clients (RFC 6120, section 5). After the upgrade, wait for a new stream.
    ///
    /// - Parameter domain: The domain of the server's users.
    public static func xmpp(domain: String) -> Self { Self(XMPPServer(domain: domain, isServerToServer: false)) }

    /// XMPP between servers. See `xmpp(domain:)`.
    public static func xmppServerToServer(domain: String) -> Self {
        Self(XMPPServer(domain: domain, isServerToServer: true))
    }

    /// PostgreSQL ("SSL Session Encryption" in its documentation). After the upgrade, wait for the startup
    /// message.
    public static var postgres: Self { postgres(acceptsDirectTLS: false) }

    /// PostgreSQL, optionally accepting TLS from the first byte (PostgreSQL 17).
    ///
    /// - Parameter acceptsDirectTLS: Whether a client may start with its ClientHello. `AsyncSocket` then adds
    ///   the application protocol `postgresql` if the settings list no application protocols, to prevent
    ///   cross-protocol attacks.
    public static func postgres(acceptsDirectTLS: Bool) -> Self {
        Self(
            PostgreSQLServer(acceptsDirectTLS: acceptsDirectTLS),
            applicationProtocol: acceptsDirectTLS ? "postgresql" : nil)
    }

    /// MySQL and MariaDB ("Connection Phase" in the source documentation of MySQL). After the upgrade, wait
    /// for the handshake response in packet 2.
    ///
    /// - Parameter makeGreeting: Returns the initial handshake packet. Called once for each connection, and
    ///   must generate a new nonce.
    public static func mysql(makeGreeting: @escaping @Sendable () -> MySQLGreeting) -> Self {
        Self { MySQLServer(greeting: makeGreeting()) }
    }

    /// LDAP (RFC 4511, section 4.14).
    public static var ldap: Self { Self(LDAPServer()) }

    /// IRC, before registration (the `tls` extension of IRCv3). The extension is deprecated: prefer TLS from
    /// the first byte on port 6697.
    ///
    /// - Parameter serverName: The server's name, used as the prefix of its messages.
    public static func irc(serverName: String) -> Self { Self(IRCServer(serverName: serverName)) }

    /// NNTP (RFC 4642, section 2.2).
    ///
    /// - Parameter greeting: The text of the greeting.
    public static func nntp(greeting: String) -> Self { Self(NNTPServer(greeting: greeting)) }

    /// Any other line-based protocol. TLS starts after the last step.
    public static func script(_ steps: [StartTLSScriptStep]) -> Self { Self(Script(steps, isClient: false)) }
}

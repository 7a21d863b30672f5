/// The client side of a protocol whose connections start in plaintext.
///
/// Use it with `AsyncSocket.startTLS(as:settings:)` or `StartTLSDialogue`. The server's offers before the
/// upgrade are discarded, because an attacker may have changed them: request them again over TLS.
public struct StartTLSClient: Sendable {
    let conversation: any Conversation
    /// The application protocol that the server requires in ALPN, if any.
    public let applicationProtocol: String?

    private init(_ conversation: any Conversation, applicationProtocol: String? = nil) {
        self.conversation = conversation
        self.applicationProtocol = applicationProtocol
    }

    /// SMTP, usually on port 587 or 25 (RFC 3207). After the upgrade, send EHLO again.
    ///
    /// - Parameter name: The client's host name, or its address in brackets, for EHLO.
    public static func smtp(name: String) -> Self { Self(SMTPClient(isLMTP: false, clientName: name)) }

    /// LMTP (RFC 2033). After the upgrade, send LHLO again.
    ///
    /// - Parameter name: The client's host name, for LHLO.
    public static func lmtp(name: String) -> Self { Self(SMTPClient(isLMTP: true, clientName: name)) }

    /// IMAP, usually on port 143 (RFC 9051, section 6.2.1). The tags `a1` and `a2` are used.
    public static var imap: Self { Self(IMAPClient()) }

    /// POP3, usually on port 110 (RFC 2595).
    public static var pop3: Self { Self(POP3Client()) }

    /// ManageSieve, usually on port 4190 (RFC 5804). After the upgrade, the server sends its capabilities
    /// again, without a command: read them first.
    public static var manageSieve: Self { Self(ManageSieveClient()) }

    /// FTP, usually on port 21, with AUTH TLS (RFC 4217). After the upgrade, send PBSZ and PROT to encrypt
    /// the data connections too.
    public static var ftp: Self { Self(FTPClient()) }

    /// XMPP for clients, usually on port 5222 (RFC 6120, section 5). After the upgrade, start a new stream.
    ///
    /// The server's certificate is for the domain, so use the settings `.client(serverName: domain)`.
    ///
    /// - Parameter domain: The domain of the user's address.
    public static func xmpp(domain: String) -> Self { Self(XMPPClient(domain: domain, from: nil)) }

    /// XMPP between servers, usually on port 5269. See `xmpp(domain:)`.
    ///
    /// - Parameters:
    ///   - domain: The domain of the other server.
    ///   - origin: The domain of this server.
    public static func xmppServer(domain: String, from origin: String) -> Self {
        Self(XMPPClient(domain: domain, from: origin))
    }

    /// PostgreSQL, usually on port 5432, with an SSLRequest. After the upgrade, send the startup message.
    public static var postgres: Self { Self(PostgreSQLClient(isDirect: false)) }

    /// PostgreSQL 17 and newer, with TLS from the first byte. The server requires the application protocol
    /// `postgresql` in ALPN. `AsyncSocket` adds it to settings without application protocols.
    public static var postgresDirect: Self { Self(PostgreSQLClient(isDirect: true), applicationProtocol: "postgresql") }

    /// MySQL and MariaDB, usually on port 3306. After the upgrade, send the handshake response as packet 2.
    public static var mysql: Self { Self(MySQLClient(onGreeting: nil)) }

    /// MySQL and MariaDB, with the server's greeting, which is needed to log in.
    ///
    /// - Parameter onGreeting: Called with the greeting before TLS starts, during `receive(_:)` or on the
    ///   socket's event loop. It must return immediately.
    public static func mysql(onGreeting: @escaping @Sendable (MySQLGreeting) -> Void) -> Self {
        Self(MySQLClient(onGreeting: onGreeting))
    }

    /// LDAP, usually on port 389 (RFC 4511, section 4.14). The message ID 1 is used.
    public static var ldap: Self { Self(LDAPClient()) }

    /// IRC, usually on port 6667, before registration.
    public static var irc: Self { Self(IRCClient()) }

    /// NNTP, usually on port 119 (RFC 4642). After the upgrade, request the capabilities again.
    public static var nntp: Self { Self(NNTPClient()) }

    /// Another protocol, in lines. TLS starts after the last step.
    public static func script(_ steps: [StartTLSScriptStep]) -> Self { Self(Script(steps, isClient: true)) }
}

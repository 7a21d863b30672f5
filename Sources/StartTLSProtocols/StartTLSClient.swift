/// A protocol whose connections start in plaintext, with the parameters of its client side.
///
/// Use it with `AsyncSocket.startTLS(as:settings:)` or `StartTLSDialogue`. Capabilities announced before the
/// upgrade are discarded, because an attacker may have modified them. Request them again over TLS.
public struct StartTLSClient: Sendable {
    let side: any ProtocolSide
    /// The application protocol that the server requires in ALPN, if any.
    public let applicationProtocol: String?

    private init(_ side: any ProtocolSide, applicationProtocol: String? = nil) {
        self.side = side
        self.applicationProtocol = applicationProtocol
    }

    /// SMTP, usually on port 587 or 25 (RFC 3207, section 4). After the upgrade, send EHLO again.
    ///
    /// - Parameter name: The client's host name, or its address in brackets, for EHLO.
    public static func smtp(name: String) -> Self { Self(SMTPClient(isLMTP: false, clientName: name)) }

    /// LMTP (RFC 2033, section 4.3). After the upgrade, send LHLO again.
    ///
    /// - Parameter name: The client's host name, for LHLO.
    public static func lmtp(name: String) -> Self { Self(SMTPClient(isLMTP: true, clientName: name)) }

    /// IMAP, usually on port 143 (RFC 9051, section 6.2.1). Uses the tags `a1` and `a2`.
    public static var imap: Self { Self(IMAPClient()) }

    /// POP3, usually on port 110 (RFC 2595, section 4).
    public static var pop3: Self { Self(POP3Client()) }

    /// ManageSieve, usually on port 4190 (RFC 5804, section 2.2). After the upgrade, the server sends its
    /// capabilities again, without a command: read them first.
    public static var manageSieve: Self { Self(ManageSieveClient()) }

    /// FTP, usually on port 21, with AUTH TLS (RFC 4217, section 4). After the upgrade, send PBSZ and PROT to
    /// encrypt the data connections too.
    public static var ftp: Self { Self(FTPClient()) }

    /// XMPP for clients, usually on port 5222 (RFC 6120, section 5). After the upgrade, start a new stream.
    ///
    /// The certificate is issued for the domain, not for the host, so pass `.client(serverName: domain)`.
    ///
    /// - Parameter domain: The domain of the user's address.
    public static func xmpp(domain: String) -> Self { Self(XMPPClient(domain: domain, origin: nil)) }

    /// XMPP between servers, usually on port 5269. See `xmpp(domain:)`.
    ///
    /// - Parameters:
    ///   - domain: The domain of the other server.
    ///   - origin: The domain of this server.
    public static func xmppServerToServer(domain: String, origin: String) -> Self {
        Self(XMPPClient(domain: domain, origin: origin))
    }

    /// PostgreSQL, usually on port 5432, with an SSLRequest ("SSL Session Encryption" in its documentation).
    /// After the upgrade, send the startup message.
    public static var postgres: Self { Self(PostgreSQLClient(isDirect: false)) }

    /// PostgreSQL 17 and later, with TLS from the first byte. The server requires the application protocol
    /// `postgresql` in ALPN. `AsyncSocket` adds it if the settings list no application protocols.
    public static var postgresDirect: Self { Self(PostgreSQLClient(isDirect: true), applicationProtocol: "postgresql") }

    /// MySQL and MariaDB, usually on port 3306, for connections that do not log in.
    public static var mysql: Self { mysql(capabilities: 0, characterSet: 45, greeting: nil) }

    /// MySQL and MariaDB, usually on port 3306 ("Connection Phase" in the source documentation of MySQL).
    /// After the upgrade, send the handshake response as packet 2.
    ///
    /// - Parameters:
    ///   - capabilities: The client's capability flags. The handshake response must repeat them, because
    ///     servers read them from the request for TLS. The flags for TLS, protocol 4.1, authentication
    ///     methods and 20-byte nonces are added; flags that the server does not support are removed.
    ///   - characterSet: The client's collation ID, such as 45 for utf8mb4. The handshake response must
    ///     repeat it, with a maximum packet size of 16 MiB.
    ///   - onGreeting: Called once with the server's greeting, which you need to log in, during `receive(_:)`
    ///     or on the socket's event loop, before TLS starts. It must return immediately.
    public static func mysql(
        capabilities: UInt32, characterSet: UInt8 = 45, onGreeting: @escaping @Sendable (MySQLGreeting) -> Void
    ) -> Self {
        mysql(capabilities: capabilities, characterSet: characterSet, greeting: onGreeting)
    }

    private static func mysql(
        capabilities: UInt32, characterSet: UInt8, greeting: (@Sendable (MySQLGreeting) -> Void)?
    ) -> Self {
        Self(MySQLClient(capabilities: capabilities, characterSet: characterSet, onGreeting: greeting))
    }

    /// LDAP, usually on port 389 (RFC 4511, section 4.14). Uses message ID 1.
    public static var ldap: Self { Self(LDAPClient()) }

    /// IRC, usually on port 6667, before registration (the `tls` extension of IRCv3). The extension is
    /// deprecated: prefer TLS from the first byte on port 6697.
    public static var irc: Self { Self(IRCClient()) }

    /// NNTP, usually on port 119 (RFC 4642, section 2.2). After the upgrade, request the capabilities again.
    public static var nntp: Self { Self(NNTPClient()) }

    /// Any other line-based protocol. TLS starts after the last step.
    public static func script(_ steps: [StartTLSScriptStep]) -> Self { Self(Script(steps, isClient: true)) }
}

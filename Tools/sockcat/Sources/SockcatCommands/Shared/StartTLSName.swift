internal import ArgumentParser
internal import AsyncSockets

/// The protocols that `--starttls` upgrades, by the names that people use on a command line.
enum StartTLSName: String, CaseIterable, ExpressibleByArgument, Sendable {
    case smtp
    case lmtp
    case imap
    case pop3
    case sieve
    case ftp
    case xmpp
    case xmppServer = "xmpp-server"
    case postgres
    case mysql
    case ldap
    case irc
    case nntp

    /// Parses a name in any case.
    init?(argument: String) { self.init(rawValue: argument.lowercased()) }

    /// Requests TLS in the protocol and upgrades the connection as a client.
    ///
    /// - Parameters:
    ///   - socket: A connection on which nothing has been read or written.
    ///   - host: The host that the user named, which some protocols send to the server.
    nonisolated(nonsending) func startTLS(on socket: AsyncSocket, host: String, _ plan: TLSClientPlan) async throws -> TLSSession
    {
        try await startTLS(on: socket, host: host, settings: plan.settings, trust: plan.trust)
    }

    /// Requests TLS in the protocol and upgrades the connection as a client, with a trust callback.
    nonisolated(nonsending) func startTLS(
        on socket: AsyncSocket, host: String, settings: TLSClientSettings,
        trust: (@Sendable (PeerTrust) async throws -> Bool)?
    ) async throws -> TLSSession {
        try await socket.startTLS(
            as: client(host), settings: settings, dialogueTimeout: settings.handshakeTimeout, trust: trust)
    }

    /// Requests TLS in the protocol and sends an offer without a handshake.
    nonisolated(nonsending) func reply(
        to probe: TLSProbe, over socket: AsyncSocket, host: String, timeout: Duration
    ) async throws -> TLSProbe.Reply {
        try await probe.reply(over: socket, after: client(host), timeout: timeout)
    }

    /// Waits until the client requests TLS in the protocol and upgrades the connection as a server.
    nonisolated(nonsending) func acceptStartTLS(
        on socket: AsyncSocket, host: String, _ settings: TLSServerSettings
    ) async throws -> TLSSession {
        try await socket.acceptStartTLS(
            as: server(host), settings: settings, dialogueTimeout: settings.handshakeTimeout)
    }

    private func client(_ host: String) -> StartTLSClient {
        switch self {
        case .smtp: .smtp(name: "localhost")
        case .lmtp: .lmtp(name: "localhost")
        case .imap: .imap
        case .pop3: .pop3
        case .sieve: .manageSieve
        case .ftp: .ftp
        case .xmpp: .xmpp(domain: host)
        case .xmppServer: .xmppServerToServer(domain: host, origin: "localhost")
        case .postgres: .postgres
        case .mysql: .mysql
        case .ldap: .ldap
        case .irc: .irc
        case .nntp: .nntp
        }
    }

    private func server(_ host: String) -> StartTLSServer {
        switch self {
        case .smtp: .smtp(greeting: "\(host) ESMTP sockcat")
        case .lmtp: .lmtp(greeting: "\(host) LMTP sockcat")
        case .imap: .imap(greeting: "sockcat ready")
        case .pop3: .pop3(greeting: "sockcat ready")
        case .sieve: .manageSieve(greeting: "sockcat ready")
        case .ftp: .ftp(greeting: "sockcat ready")
        case .xmpp: .xmpp(domain: host)
        case .xmppServer: .xmppServerToServer(domain: host)
        case .postgres: .postgres
        case .mysql: .mysql(makeGreeting: Self.makeMySQLGreeting)
        case .ldap: .ldap
        case .irc: .irc(serverName: host)
        case .nntp: .nntp(greeting: "sockcat ready")
        }
    }

    private static func makeMySQLGreeting() -> MySQLGreeting {
        MySQLGreeting(
            serverVersion: "8.0.0-sockcat", connectionID: .random(in: 1...UInt32.max),
            nonce: (0..<20).map { _ in .random(in: 1...255) }, authenticationMethod: "caching_sha2_password")
    }
}

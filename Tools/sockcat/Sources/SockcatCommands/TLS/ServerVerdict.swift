internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// A server's decision about the client's certificate, or about a client without a certificate. A refusal is
/// an error instead.
///
/// In TLS 1.2, the server decides before the handshake is complete. In TLS 1.3, the client's handshake is
/// complete before the server has received the certificate. The server's decision follows: a refusal is an
/// alert or the end of the connection, and an acceptance is a session or data.
enum ServerVerdict: Sendable, Equatable {
    case accepted
    /// Neither a refusal nor an acceptance arrived in time.
    case notConfirmed

    /// How long to wait before a harmless command of a STARTTLS protocol is sent.
    static let patience = Duration.seconds(1)

    /// Waits for the server's decision after a handshake.
    ///
    /// - Parameters:
    ///   - collector: The session store in the settings of the handshake.
    ///   - command: A command to send if the server is silent, or `nil` to send no command.
    ///   - timeout: The time limit for the decision. A refusal must not be mistaken for a success.
    /// - Throws: The refusal.
    static nonisolated(nonsending) func arrives(
        on socket: AsyncSocket, _ session: TLSSession, _ collector: SessionCollector, command: String?, hasIdentity: Bool,
        within timeout: Duration
    ) async throws -> ServerVerdict {
        if session.protocolVersion < .tls13 || session.clientCertificateRequest == nil { return .accepted }
        let patience = command == nil ? timeout : min(patience, timeout)
        let first = try verdict(await collector.arrival(on: socket, within: patience), hasIdentity)
        guard first == .notConfirmed, let command else { return first }
        do {
            try await socket.write(Data(command.utf8), timeout: timeout)
        } catch let error as AsyncSocketError {
            return try verdict(.failure(error), hasIdentity)
        }
        return try verdict(await collector.arrival(on: socket, within: timeout), hasIdentity)
    }

    private static func verdict(_ arrival: SessionCollector.Arrival, _ hasIdentity: Bool) throws -> ServerVerdict {
        switch arrival {
        case .session, .data: return .accepted
        case .nothing: return .notConfirmed
        case .end: throw closed(hasIdentity)
        case .failure(let error as AsyncSocketError):
            let isEnd = [.closedByPeer, .connectionReset, .truncated].contains(error.code) || error.tls?.code == .truncated
            throw isEnd ? closed(hasIdentity) : error
        case .failure(let error): throw error
        }
    }

    private static func closed(_ hasIdentity: Bool) -> Failure {
        hasIdentity
            ? Failure(
                "the server closed the connection after it received the client's certificate",
                advice: "check that the server trusts the authority of the certificate", status: .handshakeFailed)
            : Failure(
                "the server closed the connection to a client without a certificate",
                advice: "pass a certificate with --cert and --key", status: .handshakeFailed)
    }
}

extension StartTLSName {
    /// A command without an effect, to which every server replies before a login. `nil` if the protocol
    /// has no such command.
    var harmlessCommand: String? {
        switch self {
        case .smtp, .lmtp, .sieve, .ftp: "NOOP\r\n"
        case .imap: "sockcat NOOP\r\n"
        // NOOP requires a login.
        case .pop3: "CAPA\r\n"
        case .nntp: "CAPABILITIES\r\n"
        case .irc: "PING :sockcat\r\n"
        case .xmpp, .xmppServer, .postgres, .mysql, .ldap: nil
        }
    }
}

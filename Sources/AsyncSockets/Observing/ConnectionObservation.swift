// Rules of observing:
//  1. All calls to an observer are in this file. Those about a connection come inside its turn, with no lock
//     held: what the observer asks of the socket is a message, which is served later.
//  2. A connection has an observation from its beginning to its end, if its configuration has an observer.
//     Without one it keeps a nil reference.
//  3. Bytes are counted on every connection, where they enter the reader's buffer and leave the writer's
//     queue: plain additions.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// Delivers the events of one connection to an observer, and keeps the times that they need.
///
/// Confined to the turn of the connection.
final class ConnectionObservation {
    private let observer: any SocketObserver
    private let connection: ObservedConnection
    private let begin = Deadline.now
    private var handshake: Handshake?

    private struct Handshake {
        let role: TLSRole
        let begin: Deadline
        /// When someone was asked about the peer's certificate.
        var question: Deadline?
        var trustSeconds = 0.0

        mutating func decided(at now: Deadline) {
            if let question = question.take() { trustSeconds += now.seconds(since: question) }
        }

        /// A decision that has not come ends with the handshake.
        func times(at now: Deadline) -> HandshakeTimes {
            var ended = self
            ended.decided(at: now)
            return HandshakeTimes(seconds: now.seconds(since: begin), trustSeconds: ended.trustSeconds)
        }
    }

    /// The connection begins now.
    init(_ connection: ObservedConnection, by observer: any SocketObserver) {
        self.observer = observer
        self.connection = connection
        observer.connectionDidBegin(connection)
    }

    func beginHandshake(as role: TLSRole) {
        handshake = Handshake(role: role, begin: .now)
    }

    /// The handshake waits for the decision about the peer's certificate.
    func beginDecision() {
        handshake?.question = .now
    }

    /// It goes on.
    func endDecision() {
        handshake?.decided(at: .now)
    }

    /// The handshake is complete.
    func succeed(_ session: TLSSession) {
        guard let handshake = handshake.take() else { return }
        observer.connection(connection, didSecureAs: handshake.role, session: session, times: handshake.times(at: .now))
    }

    /// The connection has ended.
    ///
    /// - Parameter role: The role in a handshake that was refused before it began.
    func end(_ error: AsyncSocketError?, refusing role: TLSRole?, _ carried: CarriedBytes) {
        let now = Deadline.now
        if let handshake = handshake.take() ?? role.map({ Handshake(role: $0, begin: now) }) {
            observer.connection(
                connection, didFailToSecureAs: handshake.role, error: error, times: handshake.times(at: now))
        }
        observer.connectionDidEnd(
            connection, withError: error,
            totals: ConnectionTotals(
                bytesReceived: carried.received, bytesSent: carried.sent, seconds: now.seconds(since: begin)))
    }
}

// News for an observer beside the connections that there are.
extension ConnectionObservation {
    /// A connect has ended without a connection.
    static func deliverFailure(_ error: AsyncSocketError?, to observer: (any SocketObserver)?) {
        observer?.connectDidFail(error)
    }

    static func deliver(_ pause: AcceptPause, to observer: (any SocketObserver)?) {
        observer?.acceptingDidPause(pause)
    }

    /// Called when the last reference to an accepted socket was released on another thread before its
    /// connection began. The observer gets the same events as for a socket that the delegate does not keep.
    static func deliverUnkept(
        _ connection: ObservedConnection, _ carried: CarriedBytes, to observer: (any SocketObserver)?
    ) {
        guard connection.role == .server, let observer, let peer = connection.peer else { return }
        deliver(.notKept, of: peer, to: observer)
        ConnectionObservation(connection, by: observer).end(nil, refusing: nil, carried)
    }

    static func deliver(_ loss: AcceptLoss, of peer: SocketAddress, to observer: (any SocketObserver)?) {
        observer?.didLoseAcceptedConnection(from: peer, loss)
    }
}

// Rules for observing:
//  1. All calls to an observer are in this file. Calls for a connection are made inside its turn without
//     holding a lock. If the observer calls the socket, the request is queued as a message and served later.
//  2. A connection has an observation from its start to its end if its configuration has an observer.
//     Otherwise, its reference to the observation is `nil`.
//  3. Bytes are counted on every connection, even without an observer, when they enter the read buffer and
//     when they leave the write queue. This costs only an addition.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// Reports the events of one connection to an observer, and measures the times reported with them.
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
        /// When the trust decision was requested.
        var question: Deadline?
        var trustSeconds = 0.0

        mutating func decided(at now: Deadline) {
            if let question = question.take() { trustSeconds += now.seconds(since: question) }
        }

        /// An unfinished decision is counted up to the end of the handshake.
        func times(at now: Deadline) -> HandshakeTimes {
            var ended = self
            ended.decided(at: now)
            return HandshakeTimes(total: .seconds(now.seconds(since: begin)), trust: .seconds(ended.trustSeconds))
        }
    }

    init(_ connection: ObservedConnection, by observer: any SocketObserver) {
        self.observer = observer
        self.connection = connection
        observer.connectionDidBegin(connection)
    }

    func beginHandshake(as role: TLSRole) {
        handshake = Handshake(role: role, begin: .now)
    }

    /// Called when the handshake starts waiting for the decision whether to trust the peer's certificate.
    func beginDecision() {
        handshake?.question = .now
    }

    func endDecision() {
        handshake?.decided(at: .now)
    }

    func succeed(_ session: TLSSession) {
        guard let handshake = handshake.take() else { return }
        observer.connection(connection, didSecureAs: handshake.role, session: session, times: handshake.times(at: .now))
    }

    /// Called when the connection has closed.
    ///
    /// - Parameter role: The TLS role if a handshake was rejected before it started, and otherwise `nil`.
    func end(_ error: AsyncSocketError?, refusing role: TLSRole?, _ carried: CarriedBytes) {
        let now = Deadline.now
        if let handshake = handshake.take() ?? role.map({ Handshake(role: $0, begin: now) }) {
            observer.connection(
                connection, didFailToSecureAs: handshake.role, error: error, times: handshake.times(at: now))
        }
        observer.connectionDidEnd(
            connection, withError: error,
            totals: ConnectionTotals(
                bytesReceived: carried.received, bytesSent: carried.sent, duration: .seconds(now.seconds(since: begin))))
    }
}

// Events that do not belong to an observed connection.
extension ConnectionObservation {
    static func deliverFailure(_ error: AsyncSocketError?, to observer: (any SocketObserver)?) {
        observer?.connectDidFail(error)
    }

    static func deliver(_ pause: AcceptPause, to observer: (any SocketObserver)?) {
        observer?.acceptingDidPause(pause)
    }

    /// Called when the last reference to an accepted socket was released on another thread before its
    /// connection started. The observer receives the same events as for a socket that the delegate does not
    /// keep.
    static func deliverUnkept(
        _ connection: ObservedConnection, _ carried: CarriedBytes, to observer: (any SocketObserver)?
    ) {
        guard connection.role == .server, let observer, let peer = connection.peer else { return }
        deliver(.notKept, of: peer, to: observer)
        ConnectionObservation(connection, by: observer).end(nil, refusing: nil, carried)
    }

    static func deliver(_ loss: AcceptLoss, of peer: SocketEndpoint, to observer: (any SocketObserver)?) {
        observer?.didLoseAcceptedConnection(from: peer, loss)
    }
}

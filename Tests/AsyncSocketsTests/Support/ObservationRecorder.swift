import AsyncSockets
import SocketBuffers

/// A call to an observer.
enum Observed: Sendable {
    case began(ObservedConnection)
    case ended(ObservedConnection, AsyncSocketError?, ConnectionTotals)
    case connectFailed(AsyncSocketError?)
    case secured(ObservedConnection, TLSRole, TLSSession, HandshakeTimes)
    case notSecured(ObservedConnection, TLSRole, AsyncSocketError?, HandshakeTimes)
    case paused(AcceptPause)
    case lost(SocketEndpoint, AcceptLoss)

    /// The connection concerned.
    var connection: ObservedConnection? {
        switch self {
        case .began(let connection), .ended(let connection, _, _), .secured(let connection, _, _, _),
            .notSecured(let connection, _, _, _):
            connection
        case .connectFailed, .paused, .lost: nil
        }
    }

    var isEnd: Bool {
        if case .ended = self { true } else { false }
    }
}

/// An observer that records its calls, so that a test can wait for them. Shortages are not recorded, because
/// `Scripts/checks/faults` causes them at any time.
final class ObservationRecorder: SocketObserver {
    private let incoming: AsyncStream<Observed>
    private let continuation: AsyncStream<Observed>.Continuation
    private let reaction: @Sendable (Observed) -> Void

    /// - Parameter reaction: Called first, within the call to the observer.
    init(reaction: @escaping @Sendable (Observed) -> Void = { _ in }) {
        (incoming, continuation) = AsyncStream<Observed>.makeStream()
        self.reaction = reaction
    }

    private func record(_ observed: Observed) {
        reaction(observed)
        continuation.yield(observed)
    }

    /// Returns the next call. If there is none, the test's time limit ends the wait.
    func next() async -> Observed? {
        for await observed in incoming { return observed }
        return nil
    }

    /// Returns the calls until `count` connections have ended.
    func untilEnds(_ count: Int) async -> [Observed] {
        var all: [Observed] = []
        while all.count(where: \.isEnd) < count, let observed = await next() { all.append(observed) }
        return all
    }

    func connectionDidBegin(_ connection: ObservedConnection) { record(.began(connection)) }
    func connectionDidEnd(_ connection: ObservedConnection, withError error: AsyncSocketError?, totals: ConnectionTotals) {
        record(.ended(connection, error, totals))
    }
    func connectDidFail(_ error: AsyncSocketError?) { record(.connectFailed(error)) }
    func connection(
        _ connection: ObservedConnection, didSecureAs role: TLSRole, session: TLSSession, times: HandshakeTimes
    ) {
        record(.secured(connection, role, session, times))
    }
    func connection(
        _ connection: ObservedConnection, didFailToSecureAs role: TLSRole, error: AsyncSocketError?,
        times: HandshakeTimes
    ) {
        record(.notSecured(connection, role, error, times))
    }
    func acceptingDidPause(_ pause: AcceptPause) {
        if case .connectionLimit = pause.reason { record(.paused(pause)) }
    }
    func didLoseAcceptedConnection(from peer: SocketEndpoint, _ loss: AcceptLoss) { record(.lost(peer, loss)) }
}

extension [Observed] {
    /// Returns the calls about the connection with that role.
    func about(_ role: ConnectionRole) -> [Observed] {
        filter { $0.connection?.role == role }
    }

    /// Returns the end of the connection with that role.
    func end(_ role: ConnectionRole) -> (error: AsyncSocketError?, totals: ConnectionTotals)? {
        for case .ended(let connection, let error, let totals) in self where connection.role == role { return (error, totals) }
        return nil
    }
}

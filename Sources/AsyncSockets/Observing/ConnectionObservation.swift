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

/// What an observer learns of one connection, and what has to be counted for that.
///
/// Confined to the turn of the connection.
final class ConnectionObservation {
    private let observer: any SocketObserver
    private let connection: ObservedConnection
    private let begin = Deadline.now
    private var handshake: Handshake?

    private struct Handshake {
        let role: TLSSettings.Role
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

    func beginHandshake(as role: TLSSettings.Role) {
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
    fileprivate func end(_ error: AsyncSocketError?, refusing role: TLSSettings.Role?, _ carried: CarriedBytes) {
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

/// The bytes that a connection has carried.
struct CarriedBytes: Equatable, Sendable {
    /// Those for the reader; with TLS, decrypted.
    var received = 0
    /// Those of the writer; with TLS, before they were encrypted.
    var sent = 0

    /// These have come, and belong to the handshake and not to the reader.
    mutating func giveBack(_ count: Int) {
        received = max(received - count, 0)
    }
}

extension StreamConnection {
    /// The connection is established, or has got an observer since: it begins for its observer, once.
    func beginObserving(_ descriptor: SocketDescriptor) {
        guard observation == nil, let observer = configuration.value.observer else { return }
        let peer = record.withLock { $0.snapshot.remoteAddress } ?? descriptor.remoteAddress
        observation = ConnectionObservation(ObservedConnection(number: log.number, role: log.role, peer: peer), by: observer)
    }

    /// Called before the descriptor is closed: its permit may let in another connection, which begins later.
    ///
    /// - Parameter ended: The phase before the end.
    func endObserving(_ ended: ConnectionPhase, _ error: AsyncSocketError?) {
        if let observation = observation.take() {
            var role: TLSSettings.Role?
            // Between the drained queues and the handshake there is time only to refuse it.
            if case .queuedTLS(let request, drained: .both) = upgrade { role = request.settings.role }
            return observation.end(error, refusing: role, carried)
        }
        switch ended {
        case .opening, .negotiating: configuration.value.observer?.connectDidFail(error)
        case .idle, .connected, .closed: break
        }
    }

    /// Fetches what the reads lack.
    @inline(__always)
    func fill(from channel: ByteChannel) -> ByteChannel.FillAnswer {
        let before = reads.preBuffer.count
        let answer = channel.fill(reads.preBuffer, limit: reads.room)
        carried.received &+= reads.preBuffer.count - before
        return answer
    }

    /// Hands on the next part of the writes.
    @inline(__always)
    func submit(to channel: ByteChannel) -> ByteChannel.SubmitAnswer {
        let before = writes.waitingByteCount
        let answer = channel.submit(writes)
        carried.sent &+= before - writes.waitingByteCount
        return answer
    }
}

extension StreamConnection {
    /// The same for bytes that are in no queue.
    @inline(__always)
    func write(_ bytes: UnsafeRawBufferPointer, to channel: ByteChannel) -> Int {
        let count = channel.write(bytes)
        carried.sent &+= count
        return count
    }
}

extension Listener {
    /// On the loop: accepting pauses.
    func deliverPause(_ reason: AcceptPause.Reason, seconds: Double? = nil) {
        observer?.acceptingDidPause(AcceptPause(reason: reason, seconds: seconds, listener: localAddress))
    }
}

extension AcceptedConnection {
    /// No one has the connection: logs that, and has the observer know.
    func deliver(_ loss: AcceptLoss) {
        log(loss)
        listener.observer?.didLoseAcceptedConnection(from: peer, loss)
    }
}

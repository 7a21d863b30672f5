// Rules of the upgrade:
//  1. A connection is upgraded at most once; asking again is the caller's error, seen by the caller.
//  2. `startTLS` leaves a marker in both queues. The handshake begins when both have reached the front: every
//     read before the call is complete, and every byte written before it has left in plaintext.
//  3. Between the first marker and the second nothing new is read into `preBuffer` for the reader's sake, and
//     nothing is written.
//  4. Bytes that are in `preBuffer` when the handshake begins move to `sslPreBuffer` or, by the settings, end
//     the connection. No path leads back: they are never delivered as plaintext.
//  5. Reads and writes queued behind the markers are served in `.secure` only: not during the handshake, and
//     not while awaiting trust.
//     The same holds from a client's answer to `requestClientCertificate` to the decision about it.
//  6. A failed handshake closes the connection; there is no way back to `.plaintext`.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// How far a connection has come on its way from plaintext to TLS: the whole state machine of `startTLS`.
enum TLSUpgrade {
    /// No upgrade was asked for.
    case plaintext
    /// Asked for; the queues are still draining (`kQueuedTLS`).
    indirect case queuedTLS(TLSRequest, drained: DrainedQueues)
    /// The engine is at work (`kStartingReadTLS` and `kStartingWriteTLS` both set).
    case handshaking
    /// Paused for the delegate's verdict about this question.
    case awaitingTrust(TrustQuestionNumber)
    /// Done (`kSocketSecure`).
    case secure

    /// Which of the two markers has reached the front of its queue.
    struct DrainedQueues: OptionSet {
        let rawValue: UInt8

        /// Every earlier read is complete (`kStartingReadTLS`).
        static let startingReadTLS = DrainedQueues(rawValue: 1 << 0)
        /// Every earlier write is complete (`kStartingWriteTLS`).
        static let startingWriteTLS = DrainedQueues(rawValue: 1 << 1)

        static let both: DrainedQueues = [.startingReadTLS, .startingWriteTLS]
    }

    /// Bytes may be written: in plaintext, or encrypted.
    var isOpenForData: Bool {
        switch self {
        case .plaintext, .queuedTLS, .secure: true
        case .handshaking, .awaitingTrust: false
        }
    }

    /// Rule 1 was checked by the caller's side: here a second request changes nothing.
    mutating func queue(_ request: TLSRequest) {
        guard case .plaintext = self else { return }
        self = .queuedTLS(request, drained: [])
    }

    /// Rule 2: notes which queues have come to their marker; returns the request when the handshake can
    /// begin.
    mutating func note(_ newlyDrained: DrainedQueues) -> TLSRequest? {
        guard case .queuedTLS(let request, let drained) = self else { return nil }
        let all = drained.union(newlyDrained)
        self = .queuedTLS(request, drained: all)
        return all == .both ? request : nil
    }

    /// How long a task gives the writes before its `startTLS`, for each byte; nil for a delegate's.
    var taskTimeout: Double? {
        guard case .queuedTLS(let request, _) = self, request.waiter != nil else { return nil }
        return request.settings.handshakeTimeout.inSeconds
    }

    mutating func begin() {
        guard case .queuedTLS = self else { return }
        self = .handshaking
    }

    mutating func awaitTrust() -> TrustQuestionNumber {
        let number = TrustQuestionNumber()
        if case .handshaking = self { self = .awaitingTrust(number) }
        return number
    }

    /// The verdict is in; the handshake goes on, to its end or to its alert.
    mutating func resumeHandshake() {
        guard case .awaitingTrust = self else { return }
        self = .handshaking
    }

    /// The client has answered a request for its certificate.
    mutating func authenticateClient() {
        guard case .secure = self else { return }
        self = .handshaking
    }

    mutating func succeed() {
        guard case .handshaking = self else { return }
        self = .secure
    }
}

/// Distinguishes the questions about certificates: a verdict is about one of them, and not about one that
/// comes later on the same connection.
struct TrustQuestionNumber: Equatable, Sendable {
    private static let last = Atomic<UInt64>(0)
    private let value = last.add(1, ordering: .relaxed).newValue
}

/// What `startTLS` was asked to do: valid settings, and the context made of them.
struct TLSRequest: Sendable {
    let settings: TLSSettings
    let context: TLSContext
    /// Who is answered when the handshake ends; nil: the delegate.
    var waiter: (any OperationWaiter<HandshakeNews>)?
    /// The waiter decides about the peer's certificate; otherwise the delegate.
    var waiterDecidesTrust = false
    /// Of a task: it waits for no read of another one.
    var waitsForNoTask = false
}

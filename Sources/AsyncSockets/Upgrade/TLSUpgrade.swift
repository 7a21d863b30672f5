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
//  6. A failed handshake closes the connection; there is no way back to plaintext.
//  7. A secure server may ask its client for a certificate: `.authenticating`. Data goes on until the
//     client's answer is there, and rests until the decision about it. Then it is `.secure` again.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// How far a connection has come on its way from plaintext to TLS: the whole state machine of `startTLS`. A
/// connection in plaintext has none.
enum TLSUpgrade {
    /// Asked for; the queues are still draining (`kQueuedTLS`).
    indirect case queuedTLS(TLSRequest, drained: DrainedQueues)
    /// The engine is at work (`kStartingReadTLS` and `kStartingWriteTLS` both set).
    case handshaking
    /// Paused for the verdict about this question.
    case awaitingTrust(TrustQuestionNumber)
    /// Done (`kSocketSecure`).
    case secure
    /// The client was asked for a certificate after the handshake.
    case authenticating(Authentication)

    /// How far such a request is.
    enum Authentication {
        case requested
        /// The client's answer is there.
        case answered
        /// Paused for the verdict about this question.
        case awaitingTrust(TrustQuestionNumber)
    }

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
        case .queuedTLS, .secure, .authenticating(.requested): true
        case .handshaking, .awaitingTrust, .authenticating(.answered), .authenticating(.awaitingTrust): false
        }
    }

    /// Nothing is to be done for now.
    var isSettled: Bool {
        if case .secure = self { true } else { false }
    }

    /// The handshake is complete.
    var isSecure: Bool {
        switch self {
        case .secure, .authenticating: true
        case .queuedTLS, .handshaking, .awaitingTrust: false
        }
    }

    /// The question whose verdict is awaited.
    var question: TrustQuestionNumber? {
        switch self {
        case .awaitingTrust(let number), .authenticating(.awaitingTrust(let number)): number
        case .queuedTLS, .handshaking, .secure, .authenticating(.requested), .authenticating(.answered): nil
        }
    }

    /// The operation that is under way.
    var operation: OperationKind { isSecure ? .requestClientCertificate : .startTLS }

    /// Rule 2: notes which queues have come to their marker; returns the request when the handshake can
    /// begin.
    mutating func note(_ newlyDrained: DrainedQueues) -> TLSRequest? {
        guard case .queuedTLS(let request, let drained) = self else { return nil }
        let all = drained.union(newlyDrained)
        self = .queuedTLS(request, drained: all)
        return all == .both ? request : nil
    }

    /// The role in a handshake that was refused before it began: between the drained queues and the handshake
    /// there is time only for that.
    var refusedRole: TLSRole? {
        if case .queuedTLS(let request, drained: .both) = self { request.settings.role } else { nil }
    }

    /// How long a task gives the writes before its `startTLS`, for each byte, and all that comes before its
    /// `startDTLS`; nil for a delegate's.
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
        switch self {
        case .handshaking: self = .awaitingTrust(number)
        case .authenticating(.answered): self = .authenticating(.awaitingTrust(number))
        case .queuedTLS, .awaitingTrust, .secure, .authenticating: break
        }
        return number
    }

    /// The verdict is in; the handshake goes on, to its end or to its alert.
    mutating func resume() {
        switch self {
        case .awaitingTrust: self = .handshaking
        case .authenticating(.awaitingTrust): self = .authenticating(.answered)
        case .queuedTLS, .handshaking, .secure, .authenticating: break
        }
    }

    /// The client was asked for its certificate.
    mutating func authenticate() {
        guard case .secure = self else { return }
        self = .authenticating(.requested)
    }

    /// The client has answered.
    mutating func noteAnswer() {
        guard case .authenticating(.requested) = self else { return }
        self = .authenticating(.answered)
    }

    /// The handshake is complete, or a request is over.
    mutating func succeed() {
        switch self {
        case .handshaking, .authenticating: self = .secure
        case .queuedTLS, .awaitingTrust, .secure: break
        }
    }
}

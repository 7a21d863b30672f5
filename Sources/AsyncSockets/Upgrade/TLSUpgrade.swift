// Rules of the upgrade:
//  1. A connection is upgraded at most once. A second call is a caller error and is reported to the caller.
//  2. `startTLS` adds a marker to both queues. The handshake starts when both markers have reached the front:
//     every earlier read is complete, and every byte written earlier has been sent in plaintext.
//  3. When a queue's marker has reached the front, its direction pauses until the handshake starts: no bytes
//     are received into `preBuffer` for reads, or no bytes are written.
//  4. Bytes that are in `preBuffer` when the handshake starts move to `sslPreBuffer` or, depending on the
//     settings, fail the connection. They never move back, so they are never delivered as plaintext.
//  5. Reads and writes queued after the markers are performed in `.secure` only: not during the handshake,
//     and not while awaiting trust.
//  6. If the call specifies a dialogue (`UpgradeDialogue`), it takes place between rules 2 and 4, while both
//     directions are paused.
//  7. A failed dialogue or handshake closes the connection, which never returns to plaintext.
//  8. If a client's settings require a look-up, it runs after rule 2 and before everything else, while both
//     directions are paused.
//  9. A secure server may request its client's certificate: `.authenticating`. Data is transferred until the
//     client's response arrives. Transfers are then suspended until the decision has been made, and the state
//     returns to `.secure`.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The progress of a connection from plaintext to TLS: the whole state machine of `startTLS`. A plaintext
/// connection does not have this state.
enum TLSUpgrade {
    /// Requested; the queues are still draining (`kQueuedTLS`).
    indirect case queuedTLS(TLSRequest, drained: DrainedQueues)
    /// The queues are drained; the program is looking up a part of the settings.
    indirect case lookingUp(TLSRequest)
    /// The settings are complete.
    indirect case lookedUp(TLSRequest)
    /// The queues are drained; the messages before the handshake are being exchanged.
    indirect case inDialogue(TLSRequest, UpgradeDialogue)
    /// The handshake is in progress (`kStartingReadTLS` and `kStartingWriteTLS` both set).
    case handshaking
    /// Paused until this question has been decided.
    case awaitingTrust(TrustQuestionNumber)
    /// The handshake is complete (`kSocketSecure`).
    case secure
    /// The client's certificate was requested after the handshake.
    case authenticating(Authentication)

    enum Authentication {
        case requested
        case answered
        /// Paused until this question has been decided.
        case awaitingTrust(TrustQuestionNumber)
    }

    /// The markers that have reached the front of their queues.
    struct DrainedQueues: OptionSet {
        let rawValue: UInt8

        /// Every earlier read is complete (`kStartingReadTLS`).
        static let startingReadTLS = DrainedQueues(rawValue: 1 << 0)
        /// Every earlier write is complete (`kStartingWriteTLS`).
        static let startingWriteTLS = DrainedQueues(rawValue: 1 << 1)

        static let both: DrainedQueues = [.startingReadTLS, .startingWriteTLS]
    }

    /// Whether bytes may be written, in plaintext or encrypted.
    var isOpenForData: Bool {
        switch self {
        case .queuedTLS, .secure, .authenticating(.requested): true
        case .lookingUp, .lookedUp, .inDialogue, .handshaking, .awaitingTrust, .authenticating(.answered),
            .authenticating(.awaitingTrust):
            false
        }
    }

    /// Whether the upgrade currently needs no action.
    var isSettled: Bool {
        if case .secure = self { true } else { false }
    }

    var isSecure: Bool {
        switch self {
        case .secure, .authenticating: true
        case .queuedTLS, .lookingUp, .lookedUp, .inDialogue, .handshaking, .awaitingTrust: false
        }
    }

    /// The question that has not been decided yet.
    var question: TrustQuestionNumber? {
        switch self {
        case .awaitingTrust(let number), .authenticating(.awaitingTrust(let number)): number
        case .queuedTLS, .lookingUp, .lookedUp, .inDialogue, .handshaking, .secure, .authenticating(.requested),
            .authenticating(.answered):
            nil
        }
    }

    /// The dialogue in progress, if any.
    var dialogue: UpgradeDialogue? {
        if case .inDialogue(_, let dialogue) = self { dialogue } else { nil }
    }

    /// Rule 2: records the queues that have reached their marker. Returns the request when the handshake can
    /// start.
    mutating func note(_ newlyDrained: DrainedQueues) -> TLSRequest? {
        guard case .queuedTLS(let request, let drained) = self else { return nil }
        let all = drained.union(newlyDrained)
        self = .queuedTLS(request, drained: all)
        return all == .both ? request : nil
    }

    /// The role in a handshake that failed before it started: in a look-up, in the check for early bytes or
    /// in the dialogue.
    var refusedRole: TLSRole? {
        switch self {
        case .queuedTLS(let request, drained: .both), .lookingUp(let request), .lookedUp(let request),
            .inDialogue(let request, _):
            request.settings.role
        case .queuedTLS, .handshaking, .awaitingTrust, .secure, .authenticating: nil
        }
    }

    /// The time limit for work that precedes a task's upgrade. Before `startTLS`, it restarts when bytes are
    /// sent. Before `startDTLS`, it covers all the work. `nil` for a delegate's upgrade.
    var taskTimeout: Double? {
        guard case .queuedTLS(let request, _) = self, request.waiter != nil else { return nil }
        return request.settings.handshakeTimeout.inSeconds
    }

    /// Starts the look-up of a request whose queues are drained.
    mutating func beginLookUp(_ request: TLSRequest) {
        guard case .queuedTLS = self else { return }
        self = .lookingUp(request)
    }

    /// Completes the settings of a request.
    mutating func endLookUp(_ settings: TLSSettingValues) {
        guard case .lookingUp(var request) = self else { return }
        request.settings = settings
        self = .lookedUp(request)
    }

    /// Starts the dialogue of a request whose queues are drained.
    mutating func beginDialogue(_ request: TLSRequest, _ dialogue: UpgradeDialogue) {
        switch self {
        case .queuedTLS, .lookedUp: self = .inDialogue(request, dialogue)
        case .lookingUp, .inDialogue, .handshaking, .awaitingTrust, .secure, .authenticating: break
        }
    }

    mutating func begin() {
        switch self {
        case .queuedTLS, .lookedUp, .inDialogue: self = .handshaking
        case .lookingUp, .handshaking, .awaitingTrust, .secure, .authenticating: break
        }
    }

    mutating func awaitTrust() -> TrustQuestionNumber {
        let number = TrustQuestionNumber()
        switch self {
        case .handshaking: self = .awaitingTrust(number)
        case .authenticating(.answered): self = .authenticating(.awaitingTrust(number))
        case .queuedTLS, .lookingUp, .lookedUp, .inDialogue, .awaitingTrust, .secure, .authenticating: break
        }
        return number
    }

    /// Continues the handshake after the verdict, which may lead to completion or to an alert.
    mutating func resume() {
        switch self {
        case .awaitingTrust: self = .handshaking
        case .authenticating(.awaitingTrust): self = .authenticating(.answered)
        case .queuedTLS, .lookingUp, .lookedUp, .inDialogue, .handshaking, .secure, .authenticating: break
        }
    }

    mutating func authenticate() {
        guard case .secure = self else { return }
        self = .authenticating(.requested)
    }

    mutating func noteAnswer() {
        guard case .authenticating(.requested) = self else { return }
        self = .authenticating(.answered)
    }

    /// Records that the handshake or a request is complete.
    mutating func succeed() {
        switch self {
        case .handshaking, .authenticating: self = .secure
        case .queuedTLS, .lookingUp, .lookedUp, .inDialogue, .awaitingTrust, .secure: break
        }
    }
}

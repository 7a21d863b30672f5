// The state machine of a handshake. When the owner calls `handshake()`, `move` returns the engine's next
// action. When an OpenSSL step completes, `ended` returns the action that follows it. The first matching line
// applies:
//
//     phase             condition                                   move
//     failed            –                                           fail
//     established       –                                           finish
//     authenticating    –                                           settleClient
//     (any other)       a decision by the program is pending        wait
//                       the program has rejected the peer, and
//                       OpenSSL does not call back                  refuse
//     waiting, choosing no input                                    wait
//     choosing          bytes or end of file have arrived           choose; then ready
//     waiting, ready    –                                           step: ready
//
//     result of the step                                            sequel
//     success                                                       judge
//     OpenSSL needs a verdict                                       ask
//     OpenSSL needs a thread for a slow computation                 lend
//     OpenSSL needs bytes, which are held back                      askHeld
//     OpenSSL needs bytes                                           askEarly: waiting
//     the output is full                                            wait
//     failure, or end of file                                       fail
//
// The judge accepts the peer (`establish`) or rejects it (`fail`). `authenticating` handles the response to a
// later certificate request, and returns to `established`. `failed` is final.

struct Handshake {
    private(set) var phase: Phase

    enum Phase {
        /// A server reads the ClientHello to choose its settings.
        case choosing
        /// OpenSSL needs bytes from the peer.
        case waiting
        /// OpenSSL can continue.
        case ready
        case established
        /// The client's response to `requestClientCertificate` is complete.
        case authenticating
        indirect case failed(TLSError)

        var isInHandshake: Bool {
            switch self {
            case .choosing, .waiting, .ready: true
            case .established, .authenticating, .failed: false
            }
        }
    }

    // These properties are checked for each record. A `switch` over a phase with a payload would copy the
    // payload.

    var isEstablished: Bool { if case .established = phase { true } else { false } }
    var isAuthenticating: Bool { if case .authenticating = phase { true } else { false } }
    var hasFailed: Bool { if case .failed = phase { true } else { false } }

    /// A client starts immediately. A server first needs the ClientHello, and may have to choose its settings
    /// from that message.
    init(isServer: Bool, choosesSettings: Bool) {
        phase = choosesSettings ? .choosing : isServer ? .waiting : .ready
    }

    enum Step {
        case wait, choose, step, refuse, settleClient, finish
        indirect case fail(TLSError)
    }

    struct Situation {
        /// Whether a decision by the program is pending.
        var isAsking = false
        /// Whether the program has rejected the peer, but OpenSSL has no later callback that could return
        /// this decision.
        var isDecidedAgainst = false
        /// Whether bytes from the peer, or the end of the transport, have arrived.
        var hasInput = false
    }

    mutating func move(in situation: @autoclosure () -> Situation) -> Step {
        switch phase {
        case .failed(let error): return .fail(error)
        case .established: return .finish
        case .authenticating: return .settleClient
        case .choosing, .waiting, .ready: break
        }
        let situation = situation()
        if situation.isAsking { return .wait }
        if situation.isDecidedAgainst { return .refuse }
        switch phase {
        case .choosing: return situation.hasInput ? .choose : .wait
        case .waiting where !situation.hasInput: return .wait
        default:
            phase = .ready
            return .step
        }
    }

    enum NextStep {
        case judge, ask, askHeld, askEarly, lend, wait
        case fail([OpenSSLError])
    }

    /// Returns the next action after a step of OpenSSL's handshake.
    ///
    /// - Parameter isHeld: Whether bytes from the peer are held back from OpenSSL.
    mutating func ended(_ step: OpenSSLCall.Answer, isHeld: Bool) -> NextStep {
        switch step {
        case .success: return .judge
        case .wantsTrust: return .ask
        case .wantsWork: return .lend
        case .wantsRead:
            if isHeld { return .askHeld }
            phase = .waiting
            return .askEarly
        case .wantsWrite: return .wait
        case .closed: return .fail([])
        case .failure(let entries): return .fail(entries)
        }
    }

    /// Notes that OpenSSL has already received the ClientHello, so a server's handshake can continue.
    mutating func listened() {
        if case .waiting = phase { phase = .ready }
    }

    mutating func chose() {
        if case .choosing = phase { phase = .ready }
    }

    mutating func establish() {
        phase = .established
    }

    mutating func authenticate() {
        phase = .authenticating
    }

    mutating func fail(_ error: TLSError) {
        phase = .failed(error)
    }
}

// How a handshake goes. The owner calls (`move`), and the engine moves; when a step of OpenSSL has ended, the
// engine says so (`ended`), and moves again. The first line that fits counts:
//
//     phase             the owner calls, and …                      move
//     failed            –                                           fail
//     established       –                                           finish
//     authenticating    –                                           settleClient
//     (any other)       the program has a question                  wait
//                       the program has decided against the peer,
//                       and OpenSSL asks no more                     refuse
//     waiting, choosing nothing has arrived                         wait
//     choosing          bytes have arrived, or the end              choose; then ready
//     waiting, ready    –                                           step: ready
//
//     the step has ended                                            move
//     success                                                       judge
//     OpenSSL wants a verdict                                       ask
//     it wants a thread for what takes long                         lend
//     it wants bytes, and bytes are held back                       askHeld
//     it wants bytes                                                askEarly: waiting
//     its output is full                                            wait
//     failure, or the end                                           fail
//
// The judge accepts (`establish`) or does not (`fail`). `authenticating` is for the answer to a later
// request, and leads back to `established`. `failed` is final.

/// How far the handshake of a connection has come.
struct Handshake {
    private(set) var phase: Phase

    enum Phase {
        /// A server reads the ClientHello to choose its settings.
        case choosing(ServerSelection)
        /// OpenSSL needs bytes of the peer.
        case waiting
        /// OpenSSL can go on.
        case ready
        case established
        /// The client's answer to a request of `requestClientCertificate` is complete.
        case authenticating
        indirect case failed(TLSError)

        var isInHandshake: Bool {
            switch self {
            case .choosing, .waiting, .ready: true
            case .established, .authenticating, .failed: false
            }
        }
    }

    // Each record asks: a `switch` over a phase with a payload copies it.

    var isEstablished: Bool { if case .established = phase { true } else { false } }
    var isAuthenticating: Bool { if case .authenticating = phase { true } else { false } }
    var hasFailed: Bool { if case .failed = phase { true } else { false } }

    /// A client begins; a server waits for it, and may have to choose.
    init(isServer: Bool, selection: ServerSelection?) {
        phase = selection.map { .choosing($0) } ?? (isServer ? .waiting : .ready)
    }

    /// The next thing for the engine to do when its owner calls.
    enum Move {
        case wait, choose, step, refuse, settleClient, finish
        indirect case fail(TLSError)
    }

    /// The facts that the table asks about, in a handshake.
    struct Situation {
        /// The program has a question, and has not answered it.
        var isAsking = false
        /// The program has decided against the peer, and OpenSSL would not ask again.
        var isDecidedAgainst = false
        /// Bytes of the peer are there, or the end of the transport.
        var hasInput = false
    }

    /// The owner calls.
    mutating func move(in situation: @autoclosure () -> Situation) -> Move {
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

    /// The next thing to do after a step.
    enum Sequel {
        case judge, ask, askHeld, askEarly, lend, wait
        case fail([OpenSSLError])
    }

    /// A step of OpenSSL's handshake has ended.
    ///
    /// - Parameter isHeld: Bytes of the peer are held back from OpenSSL.
    mutating func ended(_ step: OpenSSLCall.Outcome, isHeld: Bool) -> Sequel {
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

    /// The ClientHello that a server waits for is in OpenSSL.
    mutating func listened() {
        if case .waiting = phase { phase = .ready }
    }

    /// The settings of a server are there.
    mutating func chose() {
        if case .choosing = phase { phase = .ready }
    }

    /// The peer is accepted.
    mutating func establish() {
        phase = .established
    }

    /// The client's answer to a later request is here.
    mutating func authenticate() {
        phase = .authenticating
    }

    mutating func fail(_ error: TLSError) {
        phase = .failed(error)
    }
}

// The slow steps of a handshake leave the thread of the engine's owner. Rules:
//  1. Only an engine that is made with `defersWork` does so. Any other computes where it is called.
//  2. OpenSSL stops where it calls back: before it signs with a key that is slow (`PrivateKey.signsSlowly`),
//     and before a client verifies a chain that is expensive (`VerificationCost`). A server cannot stop
//     before it verifies (TrustGate, rule 6): there every step leaves once the client has sent more than
//     usual.
//  3. `handshake()` returns `.awaitingWork`, and the engine belongs to that work from then on. One thread
//     calls `perform()`, and after that the owner calls `finish()` and has its engine back.
//  4. After the handshake everything is computed where it is called: a client that is asked for its
//     certificate then signs where it reads.
//  5. A step that stopped is not done twice: the callback that stopped runs again, and goes on.

internal import COpenSSL
internal import SocketBuffers
internal import Synchronization

/// A step of a handshake that takes long, and the engine that it belongs to.
package final class HandshakeWork: @unchecked Sendable {
    // Unchecked: by rule 3.
    private let engine: TLSEngine
    private let cancellation = Atomic(false)

    /// Work with the same key may have to wait for it.
    package let key: WorkKey

    fileprivate init(of engine: TLSEngine) {
        self.engine = engine
        key = engine.context.workKey
    }

    /// Computes, on any thread, once.
    package func perform() {
        if !isCancelled { engine.performWork() }
    }

    /// The connection has ended: `perform()` does nothing if it has not begun.
    package func cancel() {
        cancellation.store(true, ordering: .relaxed)
    }

    package var isCancelled: Bool { cancellation.load(ordering: .relaxed) }

    /// The engine, for its owner; call its `handshake()` next.
    package func finish() -> TLSEngine {
        engine
    }
}

extension TLSEngine {
    /// The step that was done elsewhere, or the wish for one; nil: it is done here.
    func stepElsewhere() -> OpenSSLCall.Outcome? {
        if case .done(let outcome) = facts.work {
            facts.work = .none
            return outcome
        }
        return facts.mayCompute() ? nil : .wantsWork
    }

    var awaitingWork: HandshakeAnswer { .awaitingWork(HandshakeWork(of: self)) }

    fileprivate func performWork() {
        guard case .wanted = facts.work else { return }
        facts.work = .underway
        bio.limitsOutput = true
        defer { bio.limitsOutput = false }
        facts.work = .done(stepHere())
    }

    /// No thread does the work: the handshake has failed. A client whose ClientHello is not answered yet gets
    /// the alert internal_error; later ones would have to be encrypted.
    package func refuseWork() {
        guard phase.isInHandshake, case .wanted = facts.work else { return }
        let isBeforeServerHello = SSL_get_state(ssl).rawValue == HandshakeState.clientHello
        if facts.isServer, isBeforeServerHello { sendPlaintextAlert(.internalError) }
        course.fail(TLSError(.closedDuringHandshake, "This side ended the TLS handshake before it was complete."))
    }
}

extension Facts {
    /// Whether what takes long may be done now. False: OpenSSL must stop, and the engine asks for a thread.
    func mayCompute() -> Bool {
        switch work {
        case .inPlace, .underway: return true
        case .none, .wanted, .done:
            work = .wanted
            return false
        }
    }
}

// The slow steps of a handshake do not run on the thread of the engine's owner. Rules:
//  1. This applies only to an engine created with `defersWork`. Any other engine computes on the calling
//     thread.
//  2. OpenSSL stops in a callback: before it signs with a slow key (`TLSPrivateKey.signsSlowly`), and before
//     a client verifies an expensive chain (`VerificationCost`). A server cannot stop before it verifies
//     (TrustGate, rule 6), so on a server every step is moved to another thread once the client has sent more
//     data than usual.
//  3. `handshake()` returns `.awaitingWork`, and from then on the engine belongs to that work. One thread
//     calls `perform()`. The owner then calls `finish()` to take the engine back.
//  4. After the handshake, all computation happens on the calling thread. A client that signs because the
//     server requested its certificate then does so while reading.
//  5. A stopped step is not repeated: the callback that stopped runs again, and the step continues.

internal import COpenSSL
internal import SocketBuffers
internal import Synchronization

/// A slow step of a handshake, and the engine that the step belongs to.
package final class HandshakeWork: @unchecked Sendable {
    // Unchecked: because of rule 3, only one thread at a time uses the engine.
    private let engine: TLSEngine
    private let cancellation = Atomic(false)

    /// Work with the same key may be delayed until this work is complete.
    package let key: WorkKey

    fileprivate init(of engine: TLSEngine) {
        self.engine = engine
        key = engine.context.workKey
    }

    /// Performs the work. Call this once, on any thread.
    package func perform() {
        if !isCancelled { engine.performWork() }
    }

    /// Cancels the work because the connection has closed. Has no effect if `perform()` has already started.
    package func cancel() {
        cancellation.store(true, ordering: .relaxed)
    }

    package var isCancelled: Bool { cancellation.load(ordering: .relaxed) }

    /// Returns the engine to its owner, which must call `handshake()` next.
    package func finish() -> TLSEngine {
        engine
    }
}

extension TLSEngine {
    /// Returns the outcome of a step that was performed on another thread, or `.wantsWork` to request a
    /// thread. Returns `nil` if this thread performs the step.
    func stepElsewhere() -> OpenSSLCall.Answer? {
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

    /// Fails the handshake because no thread will do the work. Before the ServerHello, a server sends the
    /// alert internal_error. Later alerts would have to be encrypted, so they are not sent.
    package func refuseWork() {
        guard phase.isInHandshake, case .wanted = facts.work else { return }
        let isBeforeServerHello = SSL_get_state(ssl).rawValue == HandshakeState.clientHello
        if facts.isServer, isBeforeServerHello { sendPlaintextAlert(.internalError) }
        course.fail(TLSError(.closedDuringHandshake, "this side closed the connection before the TLS handshake was complete"))
    }
}

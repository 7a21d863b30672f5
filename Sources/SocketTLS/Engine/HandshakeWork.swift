// What takes long in a handshake leaves the thread of the engine's owner. Rules:
//  1. Only an engine that is made with `defersWork` does so. Any other computes where it is called.
//  2. OpenSSL stops where it calls back: before it signs with a key that is slow (`PrivateKey.signsSlowly`),
//     and before a client verifies a chain that is expensive (`VerificationCost`). A server cannot stop
//     before it verifies (TrustGate, rule 6): there every step leaves once the client has sent more than
//     usual.
//  3. `handshake()` returns `.awaitingWork`, and the engine belongs to that work from then on. One thread
//     calls `perform()`, and after that the owner calls `finish()` and has its engine back.
//  4. After the handshake everything is computed where it is called: a client that is asked for its
//     certificate then signs where it reads.
//  5. What stopped is not done twice: the callback that stopped runs again, and goes on.

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
    /// One step of the handshake: here, or the one that was done elsewhere.
    func step() -> OpenSSLCall.Outcome {
        if case .done(let outcome) = events.work {
            events.work = .none
            return outcome
        }
        if events.isServer, verifiesMuch, !events.mayCompute() { return .wantsWork }
        return perform()
    }

    var awaitingWork: HandshakeAnswer { .awaitingWork(HandshakeWork(of: self)) }

    fileprivate func performWork() {
        guard case .wanted = events.work else { return }
        events.work = .underway
        bio.limitsOutput = true
        defer { bio.limitsOutput = false }
        events.work = .done(perform())
    }

    /// No thread does the work: the handshake has failed. A client whose ClientHello is not answered yet gets
    /// the alert internal_error; later ones would have to be encrypted.
    package func refuseWork() {
        guard case .handshaking = phase, case .wanted = events.work else { return }
        if events.isServer, SSL_get_state(ssl) == TLS_ST_SR_CLNT_HELLO { sendPlaintextAlert(.internalError) }
        phase = .failed(TLSError(.closedDuringHandshake, "This side gave up the TLS handshake."))
    }

    private func perform() -> OpenSSLCall.Outcome {
        let outcome = stepOfOpenSSL()
        if case .wanted = events.work { return .wantsWork }
        return outcome
    }

    /// The client has sent more than one usual certificate.
    private var verifiesMuch: Bool {
        bio.handshakeByteCount + received.count > Self.usualCertificateBytes && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE
    }

    private static let usualCertificateBytes = 2048
}

extension EngineEvents {
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

extension EngineCallbacks {
    /// Has OpenSSL stop before it shows a certificate, and signs. It does not when it resumes a session.
    static func stopBeforeSigning(on context: OpaquePointer) {
        SSL_CTX_set_cert_cb(
            context,
            { ssl, _ in
                guard let ssl, let events = EngineCallbacks.events(of: ssl) else { return 0 }
                return events.mayCompute() ? 1 : -1
            }, nil)
    }
}

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// `startTLS`: from the markers in both queues to a secure connection.
extension StreamConnection {
    func enqueue(_ request: TLSRequest) {
        guard closeIntent == nil else { return }
        upgrade.queue(request)
        reads.queue.appendStartTLS()
        writes.queue.appendStartTLS()
        needsPump = true
    }

    /// Begins the handshake when both markers stand at the front; true when it did.
    func beginHandshakeIfDrained(_ descriptor: SocketDescriptor) -> Bool {
        var drained: TLSUpgrade.DrainedQueues = []
        if case .startTLS = reads.queue.front { drained.insert(.startingReadTLS) }
        if writes.queue.isAtStartTLS { drained.insert(.startingWriteTLS) }
        guard !drained.isEmpty, let request = upgrade.note(drained) else { return false }
        return beginHandshake(request, descriptor)
    }

    private func beginHandshake(_ request: TLSRequest, _ descriptor: SocketDescriptor) -> Bool {
        if request.settings.bytesBufferedAtUpgrade == .reject, let injected = countEarlyBytes(descriptor) {
            close(.bytesBufferedAtUpgrade(injected))
            return false
        }
        do throws(TLSError) {
            let engine = try TLSEngine(context: request.context, settings: request.settings)
            // Whatever the peer sent early is ciphertext, or the handshake fails. It is never plaintext
            // again.
            reads.preBuffer.moveAll(to: engine.received)
            upgrade.begin(with: engine)
            log("TLS handshake begins", ["as": request.settings.role == .server ? "server" : "client"])
            clock = PhaseClock(.handshake(thenTrust: request.settings.trustTimeout), seconds: request.settings.handshakeTimeout)
            return true
        } catch {
            close(AsyncSocketError(error, operation: "startTLS"))
            return false
        }
    }

    /// The number of bytes that came before the handshake, when there are any: in the buffer, or waiting in
    /// the kernel.
    private func countEarlyBytes(_ descriptor: SocketDescriptor) -> Int? {
        // Asked of the kernel whatever the last event said: a late injection may be there without one.
        reads.mayHaveBytes = true
        _ = receive(into: reads.preBuffer, limit: ReadHalf.readAheadLimit, from: descriptor)
        return reads.preBuffer.isEmpty ? nil : reads.preBuffer.count
    }

    /// Drives the handshake for as long as it gets ahead; true when the state of the upgrade has changed.
    func pumpHandshake(_ engine: TLSEngine, _ descriptor: SocketDescriptor) -> Bool {
        for _ in 0..<Self.roundsPerTurn {
            let answer = engine.handshake()
            sendCiphertext(engine, descriptor)
            switch answer {
            case .complete:
                didSecure(engine)
                return true
            case .awaitingTrust(let trust):
                awaitVerdict(on: trust)
                return true
            case .failed(let error):
                close(AsyncSocketError(error, operation: "startTLS"))
                return false
            case .incomplete:
                guard receiveCiphertext(for: engine, from: descriptor) else {
                    if let error = reads.ending ?? writes.ending { close(error.during("startTLS")) }
                    return false
                }
            }
        }
        askForTurn()
        return false
    }

    private func didSecure(_ engine: TLSEngine) {
        clock = nil
        upgrade.succeed()
        reads.queue.removeStartTLS()
        writes.queue.removeStartTLS()
        let session = engine.session.map(LatestSession.share)
        facts.withLock { facts in
            facts.isSecure = true
            facts.session = session
        }
        log(
            "TLS established",
            [
                "version": "\(session?.value.protocolVersion.description ?? "")",
                "cipherSuite": "\(session?.value.cipherSuite ?? "")",
            ])
        report(.didSecure)
    }

    // MARK: - Trust

    private func awaitVerdict(on trust: PeerTrust) {
        clock = clock?.pauseForTrust()
        upgrade.awaitTrust()
        report(.didReceiveTrust(trust) { [weak self] accepted in self?.post(.verdict(accepted)) })
    }

    /// The delegate's verdict. A second one, or one that comes too late, finds no one waiting.
    func decideTrust(_ accepted: Bool) {
        guard case .awaitingTrust(let engine) = upgrade else { return }
        engine.decideTrust(accepted)
        resumeHandshake()
    }

    /// No verdict came in time: that is a no.
    func expireTrust() {
        guard case .awaitingTrust(let engine) = upgrade else { return clock = nil }
        engine.decideTrust(false, refusal: .timedOut)
        resumeHandshake()
    }

    private func resumeHandshake() {
        upgrade.resumeHandshake()
        clock = clock?.resumeHandshake()
        needsPump = true
    }
}

extension AsyncSocketError {
    /// The same error, seen from a larger operation.
    fileprivate func during(_ operation: String) -> AsyncSocketError {
        var error = self
        error.operation = operation
        return error
    }

    fileprivate static func bytesBufferedAtUpgrade(_ count: Int) -> AsyncSocketError {
        AsyncSocketError(
            .bytesBufferedAtUpgrade, blame: .peer, operation: "startTLS",
            message:
                "\(count) bytes of plaintext came before the handshake: an injection, or a greeting or reply that was not read before startTLS"
        )
    }
}

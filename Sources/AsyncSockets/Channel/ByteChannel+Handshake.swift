internal import SocketBuffers
internal import SocketTLS

/// The handshake, and the questions that it asks.
extension ByteChannel {
    enum HandshakeAnswer {
        case complete(TLSSession?, KeyExporter)
        case awaitingTrust(PeerTrust)
        /// The settings for a client are to be chosen, or its early data may be answered.
        case awaitingSettings(TLSServerQuestion)
        /// `takeBack(_:)` follows when it is done.
        case awaitingWork(HandshakeWork)
        /// Nothing until the next event.
        case incomplete
        /// Go on in another turn.
        case more
        case failed(AsyncSocketError)
    }

    /// Drives the handshake as far as it can go now.
    func handshake() -> HandshakeAnswer {
        guard case .tls(let engine) = layer else { return .incomplete }
        for _ in 0..<Self.roundsPerTurn {
            let answer = engine.handshake()
            send(engine.output)
            switch answer {
            case .complete: return .complete(engine.session, engine.exporter)
            case .awaitingTrust(let trust): return .awaitingTrust(trust)
            case .awaitingSettings(let question): return .awaitingSettings(question)
            case .awaitingWork(let work):
                lend(to: work)
                return .awaitingWork(work)
            case .failed(let error): return .failed(AsyncSocketError(error, operation: engine.operation))
            case .incomplete:
                guard receiveCiphertext(for: engine) else {
                    return failure.map { .failed($0.during(engine.operation)) } ?? .incomplete
                }
            }
        }
        return .more
    }

    /// The verdict about the peer's certificate; `handshake()` goes on with it.
    func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        if case .tls(let engine) = layer { engine.decideTrust(accepted, refusal: refusal) }
    }

    /// The answer to `.awaitingSettings`; `handshake()` goes on with it.
    func choose(_ choice: TLSServerChoice) {
        if case .tls(let engine) = layer { engine.choose(choice) }
    }

    /// Gives up a handshake that takes too long. The peer learns of it when the channel closes.
    func abandonHandshake() {
        if case .tls(let engine) = layer { engine.abandonHandshake() }
    }

    /// Sends what is left to send while nothing else moves.
    func flush() {
        if case .tls(let engine) = layer { send(engine.output) }
    }

    /// Tickets of a server wait for the next data.
    var hasTickets: Bool { if case .tls(let engine) = layer { engine.hasTickets } else { false } }

    func sendTickets() {
        guard case .tls(let engine) = layer, engine.hasTickets else { return }
        engine.sendTickets()
        send(engine.output)
    }
}

extension TLSEngine {
    /// What its `handshake()` belongs to.
    fileprivate var operation: String { session == nil ? "startTLS" : "requestClientCertificate" }
}

extension AsyncSocketError {
    /// The same error, seen from a larger operation.
    fileprivate func during(_ operation: String) -> AsyncSocketError {
        var error = self
        error.operation = operation
        return error
    }
}

internal import SocketBuffers
internal import SocketTLS

/// The handshake, and the decisions it needs from the owner.
extension ByteChannel {
    enum HandshakeAnswer {
        case complete(TLSSession?, KeyExporter)
        case awaitingTrust(PeerTrust)
        /// The server's program must choose settings for the client, or may respond to the client's early
        /// data.
        case awaitingSettings(TLSServerQuestion)
        /// `takeBack(_:)` follows when the work is complete.
        case awaitingWork(HandshakeWork)
        /// No progress is possible until the next event.
        case incomplete
        /// Continue in another turn.
        case more
        case failed(AsyncSocketError)
    }

    /// Advances the handshake, or the processing of a client's response to a certificate request, as far as
    /// possible.
    ///
    /// - Parameter operation: The operation to name in errors.
    func handshake(_ operation: AsyncSocketError.Operation = .startTLS) -> HandshakeAnswer {
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
            case .failed(let error): return .failed(AsyncSocketError(error, operation: operation))
            case .incomplete:
                guard receiveCiphertext(for: engine) else {
                    return failure.map { .failed($0.during(operation)) } ?? .incomplete
                }
            }
        }
        return .more
    }

    /// Returns an error if the client disconnected before the trust decision. Receives nothing before the
    /// client's FIN, so that a client cannot use more memory by sending data early.
    func checkForDisconnect() -> AsyncSocketError? {
        guard hasReadHangup, case .tls(let engine) = layer else { return nil }
        while receiveCiphertext(for: engine) {}
        return engine.checkForDisconnect().map { AsyncSocketError($0, operation: .startTLS) }
    }

    /// Passes the decision about the peer's certificate to the engine. Call `handshake()` afterwards.
    func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        if case .tls(let engine) = layer { engine.decideTrust(accepted, refusal: refusal) }
    }

    /// Passes the response to `.awaitingSettings` to the engine. Call `handshake()` afterwards.
    func choose(_ choice: TLSServerChoice) {
        if case .tls(let engine) = layer { engine.choose(choice) }
    }

    /// Abandons a handshake that takes too long. The peer is notified when the channel closes.
    func abandonHandshake() {
        if case .tls(let engine) = layer { engine.abandonHandshake() }
    }

    /// Sends the engine's remaining output while no data is moving.
    func flush() {
        if case .tls(let engine) = layer { send(engine.output) }
    }

    /// Whether session tickets are being held back so that they can be sent together with the next data.
    /// Always `false` for a client.
    var hasTickets: Bool { if case .tls(let engine) = layer { engine.hasTickets } else { false } }

    func sendTickets() {
        guard case .tls(let engine) = layer, engine.hasTickets else { return }
        engine.sendTickets()
        send(engine.output)
    }
}

extension ByteChannel {
    func requestClientCertificate(
        _ request: ClientCertificateRequest
    ) throws(AsyncSocketError) -> TLSEngine.ClientTimeouts {
        guard case .tls(let engine) = layer else { throw .closed }
        guard request.hasDecider || !engine.asksAboutClients else {
            throw .badConfiguration(
                .requestClientCertificate,
                "the settings require a trust decision, but no callback is set: pass trust or set a delegate")
        }
        defer { send(engine.output) }
        do throws(TLSError) {
            return try engine.requestClientCertificate(isRequired: request.isRequired, asks: request.waiterDecidesTrust)
        } catch {
            throw AsyncSocketError(error, operation: .requestClientCertificate)
        }
    }

    /// Whether the client has responded to a request, and `handshake()` must be called.
    var isAuthenticatingClient: Bool {
        if case .tls(let engine) = layer { engine.isAuthenticatingClient } else { false }
    }

    /// Sends a certificate request that was delayed until a partially received message was complete.
    func sendDelayedRequest() {
        guard case .tls(let engine) = layer else { return }
        engine.sendDelayedRequest()
        send(engine.output)
    }
}

extension AsyncSocketError {
    /// Returns the same error, reported for the enclosing operation.
    func during(_ operation: AsyncSocketError.Operation) -> AsyncSocketError {
        var error = self
        error.operation = operation
        return error
    }
}

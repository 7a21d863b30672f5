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

    /// Drives the handshake as far as it can go now, or what follows a client's answer to a request.
    ///
    /// - Parameter operation: The operation that this belongs to.
    func handshake(_ operation: OperationKind = .startTLS) -> HandshakeAnswer {
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
            case .failed(let error): return .failed(AsyncSocketError(error, operation: operation.rawValue))
            case .incomplete:
                guard receiveCiphertext(for: engine) else {
                    return failure.map { .failed($0.during(operation.rawValue)) } ?? .incomplete
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

extension ByteChannel {
    /// Asks the client for its certificate.
    func requestClientCertificate(
        _ request: ClientCertificateRequest
    ) throws(AsyncSocketError) -> TLSEngine.ClientTimeouts {
        guard case .tls(let engine) = layer else { throw .closed }
        guard request.hasDecider || !engine.asksAboutClients else {
            throw .badConfiguration(
                "requestClientCertificate",
                "the settings leave the certificate to the program to decide about: pass trust, or set a delegate")
        }
        defer { send(engine.output) }
        do throws(TLSError) {
            return try engine.requestClientCertificate(isRequired: request.isRequired, asks: request.waiterDecidesTrust)
        } catch {
            throw AsyncSocketError(error, operation: "requestClientCertificate")
        }
    }

    /// The client has answered a request, and `handshake()` goes on.
    var isAuthenticatingClient: Bool {
        if case .tls(let engine) = layer { engine.isAuthenticatingClient } else { false }
    }

    /// Sends a request that had to wait for the rest of a message.
    func sendDelayedRequest() {
        guard case .tls(let engine) = layer else { return }
        engine.sendDelayedRequest()
        send(engine.output)
    }
}

extension AsyncSocketError {
    /// The same error, seen from a larger operation.
    fileprivate func during(_ operation: String) -> AsyncSocketError {
        var error = self
        error.operation = operation
        return error
    }
}

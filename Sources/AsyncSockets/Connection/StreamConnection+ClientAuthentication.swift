internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A server's request for its client's certificate after the handshake.
struct ClientCertificateRequest: Sendable {
    let isRequired: Bool
    /// Who is answered; nil: the delegate.
    let waiter: (any OperationWaiter<HandshakeNews>)?
    /// The waiter decides about the certificate; otherwise the delegate.
    let waiterDecidesTrust: Bool
    /// Someone is there to decide, if the settings want that.
    let hasDecider: Bool
}

// The connection has a clock while a request is outstanding, and at no other time while it is secure.
extension StreamConnection {
    /// Asks the client. A failure here leaves the connection as it was.
    func begin(_ request: ClientCertificateRequest) {
        do throws(AsyncSocketError) {
            let timeouts = try ask(request)
            waiters.add(secured: request.waiter, decidesTrust: request.waiterDecidesTrust)
            clock = PhaseClock(.handshake(thenTrust: timeouts.trust), seconds: timeouts.handshake)
            note("client certificate requested")
        } catch {
            guard let waiter = request.waiter else { return outlet.append(.didRequestClientCertificate(.failure(error))) }
            waiter.complete(.failure(error))
        }
        needsPump = true
    }

    private func ask(_ request: ClientCertificateRequest) throws(AsyncSocketError) -> TLSEngine.ClientTimeouts {
        guard ending.intent == nil, !writes.isClosing else { throw .closing(Self.requestName) }
        guard case .connected(let channel) = phase, isSecured else {
            throw .badConfiguration(Self.requestName, "the connection is not secure: wait for the end of the handshake")
        }
        guard ending.readEnd == nil else { throw .closedByPeer }
        return try channel.requestClientCertificate(request)
    }

    private var isSecured: Bool { record.withLock { $0.snapshot.isSecure } }

    private static var requestName: String { OperationKind.requestClientCertificate.rawValue }

    /// What a handshake belongs to that takes too long.
    var handshakeOperation: String { isSecured ? Self.requestName : OperationKind.startTLS.rawValue }

    /// While a request is outstanding: whether its answer is there. A request that no one will answer ends.
    ///
    /// With a client that has failed to prove who it is, the connection ends at once, and what it has sent
    /// before its answer counts for nothing. Where only the client's side has ended, ours may go on.
    func awaitsClient(_ channel: ByteChannel) -> Bool {
        channel.sendDelayedRequest()
        if channel.isAuthenticatingClient { return true }
        guard let failure = channel.failure else { return false }
        clock = nil
        let isAnswered = waiters.refuseSecured(failure)
        if channel.hasFailed {
            close(failure)
        } else if !isAnswered {
            outlet.append(.didRequestClientCertificate(.failure(failure)))
        }
        return false
    }

    /// The client has answered, and what it has shown is accepted.
    func didAuthenticateClient(_ session: TLSSession) {
        let shared = LatestSession.share(session)
        record.withLock { $0.snapshot.session = shared }
        note("client certificate received", ["certificates": "\(session.peerCertificates.count)"])
        if !waiters.answerSecured(.secured(session)) { outlet.append(.didRequestClientCertificate(.success(session))) }
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
                "no one decides about the certificate: give the parameter trust, or set a delegate")
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

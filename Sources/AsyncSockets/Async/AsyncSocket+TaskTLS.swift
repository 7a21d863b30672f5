internal import SocketBuffers
internal import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// Upgrades the connection to TLS, after the writes that were asked for before, and a delegate's reads.
    ///
    /// Returns when the handshake is complete and the peer trusted. See `beginTLS(settings:)` for what
    /// becomes of bytes that came early. Sequences such as `lines` end here; begin new ones afterwards. A
    /// cancelled handshake closes the connection, and so does every error of the handshake: there is no way
    /// back to plaintext.
    ///
    /// - Parameters:
    ///   - settings: The role and what it needs.
    ///   - trust: Decides about the peer's certificate, in a separate task with the executor preference of
    ///     this one. When `TLSSettings.trustTimeout` or a deadline expires, that task is cancelled and this
    ///     call throws. The closure can reject what OpenSSL accepts, but not the reverse, except with
    ///     `TLSTrustEvaluation.manual`. Nil: OpenSSL decides, or the delegate if the settings say so.
    /// - Returns: The session that the handshake negotiated.
    /// - Throws: `CancellationError` when the task is cancelled, what `trust` throws, or an
    ///   `AsyncSocketError`: `.tls`, `.handshakeTimeout` (also when no byte of the writes before has left for
    ///   that long), `.trustTimeout`, `.bytesBufferedAtUpgrade`, `.badConfiguration` when the socket is not
    ///   in use or was upgraded before, when neither `trust` nor a delegate decides though the settings ask
    ///   for it, or when another task waits in a read, which ends the connection; and why the connection has
    ///   ended.
    @discardableResult
    public nonisolated(nonsending) func startTLS(
        settings: TLSSettings<some TLSSide>, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await askForTLS(settings, hasTrust: trust != nil).session(trust).value
    }

    /// Begins `startTLS(settings:trust:)`. The task that waits keeps none of the settings.
    @inline(never)
    func askForTLS(_ settings: TLSSettings<some TLSSide>, hasTrust: Bool) throws -> AwaitedHandshake {
        let limit = OperationLimit(nil)
        do {
            try limit.check(.startTLS)
        } catch {
            // Later bytes must not leave in plaintext.
            disconnect()
            throw error
        }
        guard let connection else { throw Self.notInUse("startTLS") }
        var settings = settings.values
        if hasTrust, settings.trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        guard hasTrust || settings.trustEvaluation == .builtIn || hasDelegate else {
            let error = AsyncSocketError.badConfiguration(
                "startTLS", "the settings leave the certificate to the program to decide about: pass trust, or set a delegate")
            connection.post(.fail(error))
            throw error
        }
        let waiter = HandshakeWaiter(.startTLS, limit)
        _ = try startTLS(settings: settings, waiter: waiter, decidesTrust: hasTrust, waitsForNoTask: true)
        return AwaitedHandshake(operation: .startTLS, waiter: waiter, limit: limit, connection: connection, socket: self)
    }

    /// Asks the client for its certificate after the handshake (RFC 8446, section 4.6.2). For a server whose
    /// settings have `clients` set to `.certificatesOnRequest`, in TLS 1.3.
    ///
    /// A server that reads a request for something protected asks, and answers when it knows who the client
    /// is. The request leaves at once, ahead of writes that wait. Until the client's answer is there, data
    /// goes on in both directions: what the client sends before its answer is delivered as usual, and has to
    /// be read if it is more than 64 KiB. Data that follows the answer is delivered when this call has its
    /// result. While `trust` decides, nothing moves. One request can be outstanding at a time; later ones may
    /// follow, and each certificate takes the place of the one before. Session tickets are sent before the
    /// first request only.
    ///
    /// The client has `TLSSettings.handshakeTimeout` to answer. A bad certificate, none where one is
    /// required, a refusal and a cancellation end the connection.
    ///
    /// - Parameters:
    ///   - isRequired: True: a client without a certificate is refused, with the alert certificate_required.
    ///     False: `TLSSession.peerCertificates` is empty then.
    ///   - trust: Decides about the certificate, as in `startTLS(settings:trust:)`; a client that shows none
    ///     needs no decision. Nil: OpenSSL decides, or the delegate if the settings say so.
    /// - Returns: The updated session; `tlsSession` has it too.
    /// - Throws: `CancellationError`, what `trust` throws, or an `AsyncSocketError`. The connection is as it
    ///   was after `.badConfiguration` when it is not secure or nothing decides about the certificate, and
    ///   after `.tls` with `invalidSettings`, `certificateRequestPending`, or
    ///   `postHandshakeAuthenticationUnavailable` (TLS 1.2, or a client that has not offered to be asked). It
    ///   ends with `.handshakeTimeout`, and with `.tls` of any other code, such as
    ///   `clientCertificateMissing`.
    @discardableResult
    public nonisolated(nonsending) func requestClientCertificate(
        isRequired: Bool = true, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await askForCertificate(isRequired, hasTrust: trust != nil).session(trust).value
    }

    @inline(never)
    private func askForCertificate(_ isRequired: Bool, hasTrust: Bool) throws -> AwaitedHandshake {
        let limit = OperationLimit(nil)
        try limit.check(.requestClientCertificate)
        guard let connection else { throw Self.notInUse("requestClientCertificate") }
        let waiter = HandshakeWaiter(.requestClientCertificate, limit)
        connection.post(
            .requestClient(
                ClientCertificateRequest(
                    isRequired: isRequired, waiter: waiter, waiterDecidesTrust: hasTrust, hasDecider: hasTrust || hasDelegate)))
        return AwaitedHandshake(
            operation: .requestClientCertificate, waiter: waiter, limit: limit, connection: connection, socket: self)
    }
}

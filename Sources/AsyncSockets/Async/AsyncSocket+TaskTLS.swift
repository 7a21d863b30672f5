public import SocketTLS
public import StartTLSProtocols

extension AsyncSocket: UpgradableSocket {
    static func post(_ news: UpgradeNews, to connection: StreamConnection) { connection.post(.upgrading(news)) }

    func abandonUpgrade() { disconnect(.abandoned) }

    /// Upgrades the connection to TLS after all previously queued writes and delegate reads are complete.
    ///
    /// Returns when the handshake is complete and the peer is trusted. See `beginTLS(settings:)` for how
    /// bytes that arrive before the handshake are treated. A loop over a sequence such as `lines` may call
    /// this and continue: its later elements are decrypted data. If the handshake fails or is cancelled, the
    /// connection is closed. It never falls back to plaintext.
    ///
    /// - Parameters:
    ///   - settings: The settings for the client or server role.
    ///   - trust: Decides whether to trust the peer's certificate, in a separate task with the executor
    ///     preference of the current task (no preference in Swift 6.2). If `TLSSettings.trustTimeout` or a
    ///     deadline expires, that task is cancelled and this call throws. The closure can reject what OpenSSL
    ///     accepts. It can accept what OpenSSL rejects only with `TLSTrustEvaluation.manual`. If `nil`, the
    ///     decision is made by OpenSSL or, if the settings require it, by the delegate.
    /// - Returns: The negotiated session.
    /// - Throws: `CancellationError` if the task is cancelled, an error thrown by `trust`, the reason the
    ///   connection failed, or one of these `AsyncSocketError`s: `.tls`; `.handshakeTimeout`, also if the
    ///   preceding writes make no progress for the duration of that timeout; `.trustTimeout`;
    ///   `.earlyPlaintext`; `.badConfiguration`. The reasons for `.badConfiguration` are: the socket is not
    ///   in use, an upgrade has already been started, the settings leave the decision to the program but
    ///   there is neither `trust` nor a delegate, or another task has a pending read. In the last two cases
    ///   the connection is closed. `.closed` is thrown if this side has already closed its write stream. The
    ///   connection is then closed too.
    @discardableResult
    public nonisolated(nonsending) func startTLS(
        settings: TLSSettings<some TLSRole.Side>, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await AwaitedHandshake.begin(settings, on: self, hasTrust: trust != nil).session(trust).value
    }

    /// Performs a protocol's STARTTLS dialogue as a client, and then upgrades the connection to TLS.
    ///
    /// ```swift
    /// try await socket.startTLS(as: .smtp(name: "client.example"), settings: .client)
    /// try await socket.writeLine("EHLO client.example")
    /// ```
    ///
    /// Call this immediately after connecting: the dialogue includes the server's greeting. Returns when the
    /// handshake is complete and the server is trusted. If the server does not offer TLS or refuses it, if it
    /// sends anything unexpected, or if the task is cancelled, the connection is closed. It never continues
    /// in plaintext. Request the server's capabilities again over TLS.
    ///
    /// - Parameters:
    ///   - client: The protocol and its client-side parameters.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit for the dialogue. See also `TLSSettings.handshakeTimeout`.
    ///   - trust: See `startTLS(settings:trust:)`.
    /// - Returns: The negotiated session.
    /// - Throws: The errors of `startTLS(settings:trust:)`. `.startTLSFailed` if the dialogue failed, and
    ///   `.earlyPlaintext` if bytes were injected: see `AsyncSocketError.startTLS`. `.handshakeTimeout` also
    ///   if the dialogue was not complete in time. `.badParameter` if a parameter cannot be sent.
    @discardableResult
    public nonisolated(nonsending) func startTLS(
        as client: StartTLSClient, settings: TLSClientSettings, dialogueTimeout: Duration = .seconds(60),
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        let settings = DialogueRequest.add(client.applicationProtocol, to: settings)
        let dialogue = DialogueRequest.maker(client, dialogueTimeout)
        return try await AwaitedHandshake.begin(settings, on: self, hasTrust: trust != nil, dialogue).session(trust).value
    }

    /// Performs a protocol's STARTTLS dialogue as a server, and then upgrades the connection to TLS.
    ///
    /// Call this as the first operation on an accepted connection: the dialogue sends the greeting, replies
    /// to the client's commands and rejects commands that need TLS. Returns when the handshake is complete.
    /// Everything that the client sent before TLS is discarded. The connection is closed if the client logs
    /// out, sends anything after the command that starts TLS, or exceeds `StartTLSDialogue.maximumLength`.
    ///
    /// - Parameters:
    ///   - server: The protocol and its server-side parameters.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit for the whole dialogue. It does not restart with each command.
    ///   - trust: See `startTLS(settings:trust:)`.
    /// - Returns: The negotiated session.
    /// - Throws: The errors of `startTLS(as:settings:dialogueTimeout:trust:)`. If the client logs out,
    ///   `error.startTLS?.code` is `.closed`.
    @discardableResult
    public nonisolated(nonsending) func acceptStartTLS(
        as server: StartTLSServer, settings: TLSServerSettings, dialogueTimeout: Duration = .seconds(60),
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        let settings = DialogueRequest.add(server.applicationProtocol, to: settings)
        let dialogue = DialogueRequest.maker(server, dialogueTimeout)
        return try await AwaitedHandshake.begin(settings, on: self, hasTrust: trust != nil, dialogue).session(trust).value
    }

    /// Requests the client's certificate after the handshake (RFC 8446, section 4.6.2).
    ///
    /// For TLS 1.3 servers with `clients` set to `.certificatesOnRequest` in their settings. Call this, for
    /// example, when a client requests a protected resource, and respond once the client is authenticated.
    ///
    /// The request is sent immediately, ahead of queued writes. Data continues to flow in both directions
    /// until the client responds. Data sent by the client before its response is delivered as usual, and
    /// must be read if it exceeds 64 KiB. Data that follows the response is delivered after this call
    /// completes. No data is transferred while `trust` is running. Only one request can be outstanding at a
    /// time. Later requests are allowed, and each new certificate replaces the previous certificate. Session
    /// tickets are sent only before the first request.
    ///
    /// The client must respond within `TLSSettings.handshakeTimeout`. The connection is closed if the
    /// certificate is invalid or rejected, if a required certificate is missing, or if the task is cancelled.
    ///
    /// - Parameters:
    ///   - isRequired: Whether to reject a client without a certificate, with the alert
    ///     certificate_required. If `false`, such a client is accepted with an empty
    ///     `TLSSession.peerCertificates`.
    ///   - trust: Decides whether to trust the certificate, as in `startTLS(settings:trust:)`. It is not
    ///     called for a client without a certificate. If `nil`, the decision is made by OpenSSL or, if the
    ///     settings require it, by the delegate.
    /// - Returns: The updated session, which is also available as `tlsSession`.
    /// - Throws: `CancellationError`, an error thrown by `trust`, or an `AsyncSocketError`. The connection
    ///   stays usable after `.badConfiguration` (the connection is not secure, or there is no `trust`
    ///   closure or delegate to decide about the certificate) and after `.tls` with the code
    ///   `invalidSettings`, `certificateRequestPending` or `postHandshakeAuthenticationUnavailable` (TLS
    ///   1.2, or a client that did not offer post-handshake authentication). The connection is closed after
    ///   `.handshakeTimeout` and after `.tls` with any other code, such as `clientCertificateMissing`.
    @discardableResult
    public nonisolated(nonsending) func requestClientCertificate(
        isRequired: Bool = true, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        let hasTrust = trust != nil
        return try await AwaitedHandshake.begin(.requestClientCertificate, on: self) { [hasDecider = hasTrust || hasDelegate] in
            .requestClient(
                ClientCertificateRequest(
                    isRequired: isRequired, waiter: $0, waiterDecidesTrust: hasTrust, hasDecider: hasDecider))
        }.session(trust).value
    }
}

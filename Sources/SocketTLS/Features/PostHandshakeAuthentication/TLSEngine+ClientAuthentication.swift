// How a server requests a client certificate after the handshake (RFC 8446, 4.6.2). Rules:
//  1. The settings must allow it (`TLSClients.certificatesOnRequest`), the client must have offered
//     post-handshake authentication, and only one request may be outstanding. Otherwise the call throws,
//     and the connection is unaffected.
//  2. Each request uses a new trust gate. The certificate from an earlier request is ignored.
//  3. Data flows in both directions until the client's Finished arrives. The BIO then holds back all further
//     bytes from OpenSSL, and the phase is `.authenticating`, in which no data is read or written. As in the
//     handshake, the owner calls `handshake()` to complete it.
//  4. No data is written while a response is partially received, because `SSL_write` would read the rest
//     of it and then continue writing.
//  5. Pending tickets are sent before the first request, and no tickets are sent after it, because a
//     ticket would contain the certificate.

internal import COpenSSL
internal import SocketBuffers

extension TLSEngine {
    /// The time limits for the steps of a request, in seconds.
    package struct ClientTimeouts: Sendable {
        package let handshake: Double
        package let trust: Double
    }

    /// Whether the trust callback is called for a certificate that the client sends on request.
    package var asksAboutClients: Bool { (clientAuthentication?.original ?? judge.gate).asks }

    /// Whether the client's response is complete but not yet accepted or rejected. Call `handshake()`, as
    /// in rules 4 to 6 of `TLSEngine`, until it returns `.complete` or `.failed`. Until then no data can
    /// be read or written.
    package var isAuthenticatingClient: Bool {
        if case .authenticating = phase { true } else { false }
    }

    /// Whether a request is outstanding or delayed, because the client's response is not complete yet.
    package var isAwaitingClient: Bool { facts.isAwaitingClient || clientAuthentication?.isDelayed == true }

    /// Requests a certificate from the client. The response arrives while the owner reads;
    /// `isAuthenticatingClient` then becomes true. If this throws, the connection is unaffected.
    ///
    /// - Parameters:
    ///   - isRequired: Whether a client without a certificate is rejected.
    ///   - asks: Whether to call a trust callback even if the settings let OpenSSL decide.
    package func requestClientCertificate(isRequired: Bool, asks: Bool = false) throws(TLSError) -> ClientTimeouts {
        guard !isAwaitingClient, !isAuthenticatingClient else {
            throw Self.refused(.certificateRequestPending, "the previous request is still pending")
        }
        guard !hasSentClose else { throw Self.refused(.internalError, "close_notify has been sent") }
        guard case .established = phase, let clientAuthentication, context.requestsClientCertificates else {
            throw Self.refused(.invalidSettings, "clients is not .certificatesOnRequest in the settings")
        }
        guard SSL_version(ssl) == TLS1_3_VERSION else {
            throw Self.refused(.postHandshakeAuthenticationUnavailable, "the connection does not use TLS 1.3")
        }
        let mode = SSL_VERIFY_PEER | SSL_VERIFY_POST_HANDSHAKE | (isRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0)
        SSL_set_verify(ssl, mode, nil)
        do throws(TLSError) {
            try sendRequest()
        } catch {
            SSL_set_verify(ssl, SSL_VERIFY_NONE, nil)
            throw error
        }
        // The gate is not consulted until the response arrives.
        let original = clientAuthentication.original ?? judge.gate
        clientAuthentication.original = original
        judge.begin(with: original.renewed(asks: asks))
        return ClientTimeouts(handshake: clientAuthentication.handshakeTimeout, trust: clientAuthentication.trustTimeout)
    }

    /// Sends a delayed request if that is now possible. Call this after each arrival while
    /// `isAwaitingClient` is true.
    package func sendDelayedRequest() {
        guard case .established = phase, clientAuthentication?.isDelayed == true else { return }
        guard !hasSentClose else {
            clientAuthentication?.isDelayed = false
            return
        }
        do throws(TLSError) {
            try sendRequest()
        } catch {
            course.fail(error)
        }
    }

    private func sendRequest() throws(TLSError) {
        clientAuthentication?.isDelayed = SSL_in_init(ssl) != 0
        guard SSL_in_init(ssl) == 0 else { return }
        sendTickets()
        let (isReady, errors) = exporter.excluding {
            OpenSSLCall.attempt { SSL_verify_client_post_handshake(ssl) == 1 ? true : nil }
        }
        guard isReady == true else { throw Self.error(errors) }
        facts.isAwaitingClient = true
        let outcome = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) } }
        if case .failure(let entries) = outcome { throw fail("SSL_do_handshake", entries) }
    }

    private static func error(_ errors: [OpenSSLError]) -> TLSError {
        if errors.contains(where: { $0.isFromSSL && $0.reason == SSL_R_EXTENSION_NOT_RECEIVED }) {
            return refused(
                .postHandshakeAuthenticationUnavailable, "the client did not offer post-handshake authentication")
        }
        return TLSError(
            .internalError, "OpenSSL cannot request a client certificate",
            operation: "SSL_verify_client_post_handshake", openSSLStack: errors.map(\.text))
    }

    private static func refused(_ code: TLSError.Code, _ reason: String) -> TLSError {
        TLSError(code, "the client certificate cannot be requested: \(reason)", operation: "requestClientCertificate")
    }

    // MARK: - The response

    /// Called when OpenSSL has stopped reading. Enters the phase `.authenticating` if it stopped because the
    /// client's response is complete (rule 3).
    func noteClientAnswer() {
        guard facts.isAwaitingClient, bio.isHeld, SSL_in_init(ssl) == 0 else { return }
        facts.isAwaitingClient = false
        course.authenticate()
    }

    /// Whether a response is partially received (rule 4).
    var isAmidClientAnswer: Bool { facts.isAwaitingClient && SSL_in_init(ssl) != 0 }

    /// Applies the trust decision to the client's complete response (rule 3).
    func settleClient() -> HandshakeAnswer {
        if isAwaitingTrust { return .incomplete }
        if let trust = judge.gate.takeQuestion() { return .awaitingTrust(trust) }
        bio.isHeld = false
        if case .byDecision = judge.gate.refusal { return .failed(exporter.excluding { refusePeer() }) }
        let requiresCertificate = SSL_get_verify_mode(ssl) & SSL_VERIFY_FAIL_IF_NO_PEER_CERT != 0
        guard judge.gate.admits(isOptional: !requiresCertificate && SSL_get0_peer_certificate(ssl) == nil) else {
            let error = judge.gate.admissionError
            course.fail(error)
            return .failed(error)
        }
        course.establish()
        return .complete
    }

    /// Abandons a request that takes too long. Sends a certificate_required alert unless the response was
    /// partially received.
    func abandonClientRequest() {
        if isAwaitingTrust {
            decideTrust(false, refusal: .timedOut)
            _ = handshake()
        } else if case .established = phase, isAwaitingClient {
            exporter.excluding { sendAlert(.certificateRequired) }
            var error = TLSError(.clientCertificateMissing, "the client did not respond to the certificate request")
            error.sentAlert = facts.sentAlert
            course.fail(error)
        }
    }
}

extension TLSSettings where Side == TLSRole.Client {
    /// Whether the client allows the server to request the client's certificate after the handshake (RFC
    /// 8446, section 4.6.2). Defaults to false.
    ///
    /// Some servers request a certificate only once they know which resource the client has requested. The
    /// client responds while it reads, and sends the certificate of `identity`, or no certificate if
    /// `identity` is `nil`. Requires TLS 1.3.
    public var allowsPostHandshakeAuthentication: Bool {
        get { values.allowsPostHandshakeAuthentication }
        set { values.allowsPostHandshakeAuthentication = newValue }
    }
}

extension TLSError.Code {
    /// The server cannot request a client certificate after the handshake, because the connection does
    /// not use TLS 1.3 or the client did not offer post-handshake authentication.
    public static let postHandshakeAuthenticationUnavailable = TLSError.Code(
        "postHandshakeAuthenticationUnavailable", fault: .peer)
    /// The previous request for a client certificate is still pending.
    public static let certificateRequestPending = TLSError.Code("certificateRequestPending", fault: .caller)
}

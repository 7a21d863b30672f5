// How a server asks its client for a certificate after the handshake (RFC 8446, 4.6.2). Rules:
//  1. The settings say that it may (`TLSClients.certificatesOnRequest`), the client has said that it can, and
//     one request is outstanding at a time. Anything else is an error without harm to the connection.
//  2. Each request has a trust gate of its own. The certificate of an earlier request counts for nothing.
//  3. Data goes on in both directions until the client's Finished. There the BIO stops: OpenSSL reads nothing
//     behind it, and the phase is `.authenticating`, in which nothing is read or written. `handshake()` leads
//     out of it, as it does out of the handshake.
//  4. While a part of the answer is there, nothing is written: OpenSSL would read the rest of the answer in
//     the middle of `SSL_write`, and go on to write.
//  5. Tickets that are due leave before the first request, and there are none after it: a ticket would carry
//     the certificate.

internal import COpenSSL
internal import SocketBuffers

extension TLSEngine {
    /// How long the steps of a request may take, in seconds.
    package struct ClientTimeouts: Sendable {
        package let handshake: Double
        package let trust: Double
    }

    /// Whether a trust callback is asked about a certificate that comes on request.
    package var asksAboutClients: Bool { (clientAuthentication?.original ?? judge.gate).asks }

    /// The client's answer is complete, or a decision about it is open: call `handshake()`, as in rules 4 to
    /// 6, until it returns `.complete` or `.failed`. Meanwhile nothing can be read or written.
    package var isAuthenticatingClient: Bool {
        if case .authenticating = phase { true } else { false }
    }

    /// A request is outstanding: the client has not answered.
    package var isAwaitingClient: Bool { facts.isAwaitingClient || clientAuthentication?.isDelayed == true }

    /// Asks the client for a certificate. The answer comes while the owner reads: `isAuthenticatingClient`
    /// becomes true. A failure that is thrown leaves the connection as it was.
    ///
    /// - Parameters:
    ///   - isRequired: A client that shows none is refused.
    ///   - asks: A trust callback is asked even where the settings have OpenSSL decide.
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
        // Nothing asks the gate before the answer.
        let original = clientAuthentication.original ?? judge.gate
        clientAuthentication.original = original
        judge.begin(with: original.renewed(asks: asks))
        return ClientTimeouts(handshake: clientAuthentication.handshakeTimeout, trust: clientAuthentication.trustTimeout)
    }

    /// Sends a request that had to wait, if it can be sent now. Call it after each arrival, while
    /// `isAwaitingClient`.
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
            .internalError, "OpenSSL cannot ask the client for a certificate.",
            operation: "SSL_verify_client_post_handshake", openSSLStack: errors.map(\.text))
    }

    private static func refused(_ code: TLSError.Code, _ reason: String) -> TLSError {
        TLSError(code, "The client cannot be asked for a certificate: \(reason).", operation: "requestClientCertificate")
    }

    // MARK: - The answer

    /// OpenSSL has stopped reading: perhaps because the client's answer is complete (rule 3).
    func noteClientAnswer() {
        guard facts.isAwaitingClient, bio.isHeld, SSL_in_init(ssl) == 0 else { return }
        facts.isAwaitingClient = false
        course.authenticate()
    }

    /// Rule 4.
    var isAmidClientAnswer: Bool { facts.isAwaitingClient && SSL_in_init(ssl) != 0 }

    /// Goes on from the client's answer.
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

    /// Gives up a request that takes too long: with the alert certificate_required, unless half of the answer
    /// is there.
    func abandonClientRequest() {
        if isAwaitingTrust {
            decideTrust(false, refusal: .timedOut)
            _ = handshake()
        } else if case .established = phase, isAwaitingClient {
            exporter.excluding { sendAlert(.certificateRequired) }
            var error = TLSError(.clientCertificateMissing, "The client did not answer the request for its certificate.")
            error.sentAlert = facts.sentAlert
            course.fail(error)
        }
    }
}

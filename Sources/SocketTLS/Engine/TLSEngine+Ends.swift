internal import COpenSSL
internal import SocketBuffers

/// Completion and failure of handshakes and connections, including the cases for which OpenSSL has no
/// function.
extension TLSEngine {
    /// Establishes the connection if the gate has accepted the peer, whatever the cipher suite. A server that
    /// does not require a certificate also accepts a client that did not send one.
    func establish() -> HandshakeAnswer {
        let requiresCertificate = SSL_get_verify_mode(ssl) & SSL_VERIFY_FAIL_IF_NO_PEER_CERT != 0
        guard judge.gate.admits(isOptional: facts.isServer && !requiresCertificate) else {
            sendRefusal()
            var error = judge.gate.admissionError
            error.sentAlert = facts.sentAlert
            course.fail(error)
            return .failed(error)
        }
        course.establish()
        (facts.isEstablished, bio.withholdsEnd) = (true, true)
        judge.resumption?.establish(ssl)
        if facts.isServer { context.tickets?.establish(ssl) }
        if facts.isServer, context.ticketCount > 0, judge.gate.acceptedKey == nil, SSL_version(ssl) == TLS1_3_VERSION {
            ticketsToSend = isResumed ? 1 : UInt8(clamping: context.ticketCount)
        }
        exporter.lend(ssl)
        bio.forgetFirstBytes()
        return .complete
    }

    var isResumed: Bool { SSL_session_reused(ssl) == 1 }

    /// Abandons a handshake that takes too long. Adds the alerts user_canceled and close_notify to `output`
    /// or, if alerts must already be encrypted, OpenSSL's alert for an interrupted handshake (decode_error).
    /// The engine cannot be used afterwards.
    package func abandonHandshake() {
        guard phase.isInHandshake else { return abandonClientRequest() }
        if isAwaitingTrust {
            decideTrust(false, refusal: .timedOut)
            _ = handshake()
            return
        }
        bio.abandon()
        _ = OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) }
        course.fail(TLSError(.closedDuringHandshake, "this side closed the connection before the TLS handshake was complete"))
    }

    /// Fails a server's handshake if the client disconnected before the decision about its certificate.
    package func checkForDisconnect() -> TLSError? {
        facts.isServer && isAwaitingTrust && bio.hasEndedWithoutData(on: ssl) ? fail("SSL_do_handshake", []) : nil
    }

    /// Whether this side must respond to the peer's close_notify with its own and discard pending writes (RFC
    /// 5246, 7.2.1). TLS 1.3 does not require this.
    package var owesCloseNotify: Bool {
        SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0 && SSL_version(ssl) < TLS1_3_VERSION
    }

    /// Rejects a peer in the cases where OpenSSL does not fail: on a server, and on a client that resumes a
    /// session.
    func refusePeer() -> TLSError {
        sendRefusal()
        return fail("SSL_do_handshake", [])
    }

    /// Sends the alert for a rejected peer in the way that is possible at this point.
    func sendRefusal() {
        if bio.isHeld {
            // Alerts are still in plaintext: this is before our ChangeCipherSpec (RFC 5246, 7.2) or, in TLS
            // 1.3, at a point at which OpenSSL itself sends plaintext alerts.
            sendPlaintextAlert(.badCertificate)
        } else if facts.isServer, SSL_version(ssl) == TLS1_3_VERSION {
            sendAlert(.badCertificate)
        }
        if facts.sentAlert == nil { breakOff(.badCertificate) }
    }

    /// Closes the connection with an encrypted alert. `abandon()` makes OpenSSL treat the transport as closed
    /// and send decode_error, which a server replaces with `alert` (`SealedAlert`). A close_notify would look
    /// like an orderly close, and the peer could still use the session.
    private func breakOff(_ alert: TLSAlert) {
        let earlierCount = output.count
        bio.abandon()
        var (byte, count): (UInt8, Int) = (0, 0)
        _ = OpenSSLCall.perform(on: ssl) { SSL_read_ex(ssl, &byte, 1, &count) }
        var bytes = Array(output.readableBytes)
        let (record, _) = OpenSSLCall.attempt {
            SealedAlert(writtenBy: ssl)?.replace(.decodeError, by: alert, in: Array(bytes.dropFirst(earlierCount)))
        }
        guard facts.isServer, !context.handle.requiresFIPS, let record else { return }
        bytes.replaceSubrange(earlierCount..., with: record)
        output.consume(bytes.count)
        bytes.withUnsafeBytes { output.append($0) }
        facts.sawAlert(alert, isFatal: true, isOurs: true)
    }

    func sendPlaintextAlert(_ alert: TLSAlert) {
        bio.send(alert)
        facts.sawAlert(alert, isFatal: true, isOurs: true)
    }

    /// Sends an alert from a TLS 1.3 server after OpenSSL's handshake is complete.
    func sendAlert(_ alert: TLSAlert) {
        facts.alertInsteadOfTicket = alert
        _ = OpenSSLCall.perform(on: ssl) { SSL_new_session_ticket(ssl) }
        _ = OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) }
    }

    func fail(_ operation: String, _ entries: [OpenSSLError], hasReadForWriting: Bool = false) -> TLSError {
        correctAlert(for: entries)
        var error = EngineFailure(
            operation: operation, entries: entries, facts: facts,
            hasPeerClosed: SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0, hasReadForWriting: hasReadForWriting,
            state: SSL_get_state(ssl).rawValue
        ).error
        if !facts.isEstablished { error.clientCertificateRequest = facts.certificateRequest(on: ssl) }
        course.fail(error)
        return error
    }

    /// Corrects a server's alert where OpenSSL sends the wrong one:
    /// - For a wrong key in TLS 1.3, decrypt_error (RFC 8446, 6.2) replaces illegal_parameter.
    /// - For a ClientHello that we corrupted, illegal_parameter replaces decode_error.
    private func correctAlert(for entries: [OpenSSLError]) {
        guard facts.isServer else { return }
        if entries.contains(where: { $0.isFromSSL && $0.reason == SSL_R_BINDER_DOES_NOT_VERIFY }) {
            replaceAlert(.illegalParameter, by: .decryptError)
        } else if facts.complaintAboutHello != nil {
            replaceAlert(.decodeError, by: .illegalParameter)
        }
    }

    private func replaceAlert(_ wrong: TLSAlert, by right: TLSAlert) {
        var bytes = Array(output.readableBytes)
        guard AlertRecord.replace(wrong, by: right, atTheEndOf: &bytes) else { return }
        output.consume(bytes.count)
        bytes.withUnsafeBytes { output.append($0) }
        facts.sawAlert(right, isFatal: true, isOurs: true)
    }

    /// Whether OpenSSL has read everything and no more bytes will arrive.
    var hasRunDry: Bool { bio.hasReachedEndOfFile && received.isEmpty && !bio.isHeld }

    func truncation(_ operation: String) -> TLSError {
        EngineFailure(operation: operation, entries: [], facts: facts, hasPeerClosed: false, state: 0).error
    }

    /// Appends close_notify to `output`, once, if it is allowed now: not during a handshake, and not after a
    /// failure.
    package func shutdown() {
        guard case .established = phase, !hasSentClose else { return }
        hasSentClose = true
        _ = perform { SSL_shutdown(ssl) }
    }
}

extension TLSEngine {
    /// Lets OpenSSL send the pending tickets together with the next data, in one transmission instead of two.
    /// OpenSSL creates the tickets in its next writing call: make that call, then reset `facts.ticketKey`.
    func addTickets() {
        // Called before the lock is taken, because the source of shared keys is user code.
        facts.ticketKey = context.tickets?.givenKey
        for _ in 0..<ticketsToSend { _ = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_new_session_ticket(ssl) } } }
        ticketsToSend = 0
    }

    package var hasTickets: Bool { ticketsToSend > 0 }

    /// Sends the pending tickets without data. Call this if no data followed the handshake in the same
    /// turn, because a client may wait for its tickets before it sends data.
    package func sendTickets() {
        guard ticketsToSend > 0, !hasSentClose else { return }
        if case .failed = phase { return }
        addTickets()
        _ = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) } }
        facts.ticketKey = nil
    }
}

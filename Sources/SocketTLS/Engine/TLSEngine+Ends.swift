internal import COpenSSL
internal import SocketBuffers

/// The ends of a handshake and of a connection, among them those for which OpenSSL has no call.
extension TLSEngine {
    /// Gives up a handshake that takes too long. It leaves the alerts user_canceled and close_notify in
    /// `output` or, once alerts must be encrypted, OpenSSL's alert for a handshake that stops in the middle
    /// (decode_error). The engine cannot be used afterwards.
    package func abandonHandshake() {
        guard case .handshaking = phase else { return abandonClientRequest() }
        if isAwaitingTrust {
            decideTrust(false, refusal: .timedOut)
            _ = handshake()
            return
        }
        bio.abandon()
        _ = OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) }
        phase = .failed(TLSError(.closedDuringHandshake, "This side gave up the TLS handshake."))
    }

    /// Sends the alert of a side that refuses its peer when OpenSSL's handshake cannot fail any more, in the
    /// way that is possible at this point: a server, or a client that has resumed a session.
    func refusePeer() -> TLSError {
        if bio.isHeld {
            // In TLS 1.2, before this side's ChangeCipherSpec, an alert is a record in plaintext (RFC 5246,
            // 7.2).
            sendPlaintextAlert(.badCertificate)
        } else if events.isServer, SSL_version(ssl) == TLS1_3_VERSION {
            sendAlert(.badCertificate)
        }
        if events.sentAlert == nil { _ = OpenSSLCall.perform(on: ssl) { SSL_shutdown(ssl) } }
        return fail("SSL_do_handshake", [])
    }

    func sendPlaintextAlert(_ alert: TLSAlert) {
        let record: [UInt8] = [21, 3, 3, 0, 2, 2, alert.rawValue]
        record.withUnsafeBytes { output.append($0) }
        events.sawAlert(alert, isFatal: true, isOurs: true)
    }

    /// Sends an alert of a server of TLS 1.3 after OpenSSL's handshake.
    func sendAlert(_ alert: TLSAlert) {
        events.alertInsteadOfTicket = alert
        _ = OpenSSLCall.perform(on: ssl) { SSL_new_session_ticket(ssl) }
        _ = OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) }
    }

    func fail(_ operation: String, _ entries: [OpenSSLError], hasReadForWriting: Bool = false) -> TLSError {
        correctAlert(for: entries)
        let error = EngineFailure(
            operation: operation, entries: entries, events: events,
            hasPeerClosed: SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0, hasReadForWriting: hasReadForWriting,
            state: SSL_get_state(ssl).rawValue
        ).error
        phase = .failed(error)
        return error
    }

    /// Has a server send the alert that fits, where OpenSSL has another one:
    /// - For a wrong key in TLS 1.3 illegal_parameter; RFC 8446, 6.2, wants decrypt_error.
    /// - For a ClientHello that we have damaged decode_error, though it was well formed.
    private func correctAlert(for entries: [OpenSSLError]) {
        guard events.isServer else { return }
        if entries.contains(where: { $0.isFromSSL && $0.reason == SSL_R_BINDER_DOES_NOT_VERIFY }) {
            replaceAlert(.illegalParameter, by: .decryptError)
        } else if events.complaintAboutHello != nil {
            replaceAlert(.decodeError, by: .illegalParameter)
        }
    }

    /// The alert is in plaintext, and the last record in `output`.
    private func replaceAlert(_ wrong: TLSAlert, by right: TLSAlert) {
        var bytes = Array(output.readableBytes)
        let record = bytes.suffix(7)
        guard record.starts(with: [21, 3]), record.suffix(4).elementsEqual([0, 2, 2, wrong.rawValue]) else { return }
        bytes[bytes.count - 1] = right.rawValue
        output.consume(bytes.count)
        bytes.withUnsafeBytes { output.append($0) }
        events.sawAlert(right, isFatal: true, isOurs: true)
    }

    /// Nothing lies here for OpenSSL to read, and nothing follows.
    var hasRunDry: Bool { bio.hasReachedEndOfFile && received.isEmpty && !bio.isHeld }

    func truncation(_ operation: String) -> TLSError {
        EngineFailure(operation: operation, entries: [], events: events, hasPeerClosed: false, state: 0).error
    }

    /// Puts close_notify into `output`, once, if it is legal now: not during a handshake, and not after a
    /// failure.
    package func shutdown() {
        guard case .established = phase, !hasSentClose else { return }
        hasSentClose = true
        _ = perform { SSL_shutdown(ssl) }
    }
}

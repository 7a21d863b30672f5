// Converts a failed OpenSSL call into an error that names the side at fault. The first matching rule applies:
//  1. The trust gate rejected the peer.
//  2. The peer flooded this side with messages.
//  3. The two sides do not have the same pre-shared key.
//  4. OpenSSL could not decode the server's OCSP response.
//  5. The peer sent a fatal alert, or cancelled the handshake.
//  6. The transport closed.
//  7. The peer does not speak TLS.
//  8. The client has no certificate, or no pre-shared key.
//  9. The two sides have no parameters in common.
// 10. The chain is too long.
// 11. This side failed.
// 12. The peer violated the protocol.
//
// Rule 11 is narrow: errors caused by the peer's bytes are the peer's fault. This side is at fault if memory
// or random numbers ran out, if it was about to send or sign a message, if it was writing data, or if no
// bytes from the peer have arrived yet.

internal import COpenSSL

struct EngineFailure {
    let operation: String
    let entries: [OpenSSLError]
    let facts: Facts
    let hasPeerClosed: Bool
    /// Whether a write first read from the peer, to complete a partially received message.
    var hasReadForWriting = false
    /// The message that OpenSSL was reading or writing.
    let state: UInt32

    var isInHandshake: Bool { !facts.isEstablished }

    var error: TLSError {
        var error =
            refusalError ?? floodError ?? sharedKeyError ?? statusError ?? alertError ?? endError ?? notTLSError
            ?? reasonError
        error.sentAlert = facts.sentAlert
        if !isAboutOurDamage { error.openSSLStack = entries.map(\.text) }
        return error
    }

    /// Whether OpenSSL failed on a message that this library corrupted deliberately.
    private var isAboutOurDamage: Bool {
        if case .byExcess = facts.judge.gate.refusal { return true }
        return facts.complaintAboutHello != nil
    }

    func error(_ code: TLSError.Code, _ message: String) -> TLSError {
        TLSError(code, message, operation: operation)
    }

    // MARK: - Rules

    private var refusalError: TLSError? {
        switch facts.judge.gate.refusal {
        case .byVerification(let trust):
            guard case .untrusted(let reason, let code, _) = trust.verdict else { return nil }
            return refusal(TLSError.Code(verifyCode: code), reason, trust)
        case .byExcess(let trust):
            guard case .untrusted(let reason, _, _) = trust.verdict else { return nil }
            return refusal(.certificateTooLarge, reason, trust)
        case .byDecision(let trust, let decision): return refusal(decision.code, decision.sentence(about: trust), trust)
        case .byKey(let fault): return fault.error
        case nil: return nil
        }
    }

    private func refusal(_ code: TLSError.Code, _ reason: String, _ trust: PeerTrust) -> TLSError {
        var error = TLSError(code, reason, operation: operation, verifyCode: trust.verifyCode)
        error.peerTrust = trust
        return error
    }

    private var floodError: TLSError? {
        guard facts.isFlooded else { return nil }
        return error(
            .tooManyKeyUpdates,
            "the peer sent more than \(MessageAllowance.burst) non-data messages, at more than \(MessageAllowance.perSecond) per second"
        )
    }

    /// OpenSSL 3.6 and newer decode the OCSP response before this library, and report a failure as if the
    /// peer had sent the alert that OpenSSL sends to the peer.
    private var statusError: TLSError? {
        guard facts.sentAlert == .badCertificateStatusResponse, has(SSL_R_TLSV1_BAD_CERTIFICATE_STATUS_RESPONSE) else {
            return nil
        }
        return TLSError(
            TLSError.Code(verifyCode: X509_V_ERR_OCSP_VERIFY_FAILED),
            "the server's certificate was sent with an OCSP response that contains no status", operation: operation,
            verifyCode: X509_V_ERR_OCSP_VERIFY_FAILED)
    }

    private var alertError: TLSError? {
        let cancellation = isInHandshake && facts.isCancelled ? TLSAlert.userCanceled : nil
        guard let alert = entries.lazy.compactMap(\.peerAlert).first ?? cancellation else { return nil }
        let place = isInHandshake ? "the TLS handshake" : "the TLS connection"
        return TLSError(alert, during: place, operation: operation)
    }

    private var endError: TLSError? {
        let hasEnded = facts.bio.hasReachedEndOfFile || hasPeerClosed
        guard has(SSL_R_UNEXPECTED_EOF_WHILE_READING) || (entries.isEmpty && hasEnded) else { return nil }
        return isInHandshake
            ? error(.closedDuringHandshake, "the peer closed the connection before the TLS handshake was complete")
            : error(.truncated, "the peer closed the connection without close_notify: its data may be incomplete")
    }

    private var notTLSError: TLSError? {
        let first = facts.bio.firstBytes
        guard isInHandshake, let type = first.first, entries.contains(where: \.isFromSSL) else { return nil }
        // Content types 20 to 23, and major version 3 (RFC 8446, 5.1).
        if (20...23).contains(type), first.count < 2 || first[1] == 3 { return nil }
        return error(.notTLS, "the peer does not speak TLS: it sent \(Self.quoted(first))")
    }

    private var reasonError: TLSError {
        let words = entries.last?.text ?? "no reason given"
        if let complaint = facts.complaintAboutHello {
            return error(.protocolViolation, "the ClientHello was rejected: \(complaint)")
        }
        if has(SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
            return error(.clientCertificateMissing, "the client sent no certificate, but this server requires one")
        }
        if let error = missingKeyError { return error }
        if Self.nothingInCommon.contains(where: has) {
            return error(.noSharedParameters, "the two sides have no TLS parameters in common: \(words)")
        }
        if has(SSL_R_EXCESSIVE_MESSAGE_SIZE), state == HandshakeState.certificateRequest {
            return error(
                .certificateTooLarge,
                "the server's list of accepted issuers is too long: raise maximumCertificateChainBytes to accept it"
            )
        }
        if has(SSL_R_EXCESSIVE_MESSAGE_SIZE), HandshakeState.peerCertificates.contains(state) {
            return error(
                .certificateTooLarge,
                "the peer's certificates are too large: raise maximumCertificateChainBytes to accept them"
            )
        }
        if isOurs { return error(.internalError, "OpenSSL failed: \(words)") }
        return error(.protocolViolation, "the peer violated the TLS protocol, or its data was modified in transit: \(words)")
    }

    private var isOurs: Bool {
        guard facts.bio.hasHeardFromPeer, operation != "SSL_write_ex" || hasReadForWriting else { return true }
        return entries.contains(where: \.isOfThisMachine) || (isInHandshake && HandshakeState.own.contains(state))
    }

    // MARK: - Details

    func has(_ reason: Int32) -> Bool {
        entries.contains { $0.isFromSSL && $0.reason == reason }
    }

    private static let nothingInCommon: [Int32] = [
        SSL_R_NO_SHARED_CIPHER, SSL_R_NO_SHARED_GROUPS, SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS, SSL_R_NO_SUITABLE_GROUPS,
        SSL_R_NO_SUITABLE_KEY_SHARE, SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, SSL_R_NO_PROTOCOLS_AVAILABLE,
        SSL_R_NO_APPLICATION_PROTOCOL, SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_UNSUPPORTED_SSL_VERSION, SSL_R_VERSION_TOO_LOW,
        SSL_R_VERSION_TOO_HIGH, SSL_R_WRONG_SSL_VERSION, SSL_R_UNKNOWN_PROTOCOL,
    ]

    /// Returns printable bytes as quoted text, and other bytes as numbers.
    private static func quoted(_ bytes: [UInt8]) -> String {
        let line = bytes.prefix { $0 != 0x0D && $0 != 0x0A }
        if line.count >= min(3, bytes.count), line.allSatisfy({ (0x20..<0x7F).contains($0) }) {
            return "\"\(String(decoding: line, as: UTF8.self))\""
        }
        return "the bytes " + bytes.prefix(8).map { String($0, radix: 16) }.joined(separator: " ")
    }
}

/// The values of `OSSL_HANDSHAKE_STATE`. The constants in the headers may be wrong: OpenSSL 3.2 inserted
/// states, and a program may be built with one version and run with another.
enum HandshakeState {
    private static let isNew = OpenSSL_version_num() >= 0x3020_0000

    static let clientHello: UInt32 = isNew ? 22 : 20
    static let certificateRequest: UInt32 = isNew ? 8 : 7
    /// This side reads the server's or the client's certificate.
    static let peerCertificates: [UInt32] = isNew ? [4, 30] : [4, 27]
    /// This side sends its certificate, signs, or issues a ticket: first the states on a server, then the
    /// states on a client.
    static let own: [UInt32] = isNew ? [25, 27, 44, 37, 14, 17] : [23, 24, 40, 33, 13, 15]
}

extension TrustRefusal {
    fileprivate var code: TLSError.Code {
        switch self {
        case .rejected: .trustRejected
        case .timedOut: .trustTimeout
        }
    }

    fileprivate func sentence(about trust: PeerTrust) -> String {
        let shown = trust.publicKey == nil ? "the peer's certificate" : "the peer's raw public key"
        let certificate = trust.leaf.map { "the certificate of \"\($0.displayName)\"" } ?? shown
        switch self {
        case .rejected: return "the trust callback rejected \(certificate)"
        case .timedOut: return "the trust callback did not accept or reject \(certificate) within trustTimeout"
        }
    }
}

extension PeerTrust {
    fileprivate var verifyCode: Int32? {
        if case .untrusted(_, let code, _) = verdict { return code }
        return nil
    }
}

extension TLSError {
    package init(_ alert: TLSAlert, during place: String, operation: String) {
        self.init(.peerAlert, "the peer aborted \(place) with the alert \(alert)", operation: operation)
        self.alert = alert
    }
}

internal import COpenSSL
internal import FoundationEssentials
internal import SocketBuffers

/// The facts that OpenSSL's callbacks record for an engine, and what they return; `EngineCallbacks` finds
/// them from an `SSL`.
///
/// A separate class, so that the callbacks never touch a property that the engine is using.
final class EngineEvents {
    let bio: EngineBIO
    let isServer: Bool
    /// The name that the peer's certificate must be for, if a name is expected.
    let expectedName: String?
    var gate: TrustGate
    /// Whether a pinned key is in the verified chain; nil if it was not looked for.
    var matchesPins: Bool?
    /// The faults that OpenSSL has found in a chain, while it verifies that.
    var foundFaults: [PeerTrust.Verdict] = []
    /// What a stapled response must prove; nil if nothing, and for a chain that is not trusted.
    var stapledStatus: StapledStatus?
    /// Whose rules count: on a server that of the name that the client asks for.
    var context: TLSContext {
        didSet { preSharedKeyNegotiation = context.preSharedKeys.map { PreSharedKeyNegotiation($0) } }
    }
    /// Nil without pre-shared keys.
    private(set) var preSharedKeyNegotiation: PreSharedKeyNegotiation?
    /// What a client resumes; nil on a server, and on a client that resumes nothing.
    let resumption: ClientResumption?
    /// For the tickets of a server.
    var ticketFacts = TicketFacts()
    /// The fatal alert that was sent.
    private(set) var sentAlert: TLSAlert?
    /// The peer has cancelled the handshake (RFC 8446, 6.1).
    private(set) var isCancelled = false
    var isEstablished = false {
        didSet { chosenHello = nil }
    }
    /// What is wrong with a ClientHello that this side refuses.
    var complaintAboutHello: String?
    /// A client has seen so many messages ServerHello: the first of two asks for another ClientHello (RFC
    /// 8446, 4.1.4).
    var serverHelloCount = 0
    /// A server chooses its settings by the ClientHello.
    var choosesByHello = false
    /// The ClientHello by which a server's settings were chosen; nil if none was.
    var chosenHello: TLSClientHello?
    /// How many bytes of early data a server delivers first.
    var earlyByteCount = 0
    /// A client has not sent its early data, which is for another application protocol.
    var withholdsEarlyData = false
    /// The next session ticket becomes this alert instead: see `EngineCallbacks.installRefusal(on:)`.
    var alertInsteadOfTicket: TLSAlert?
    /// A server has asked for a certificate after the handshake, and the client's Finished has not come.
    var isAwaitingClient = false
    /// OpenSSL has no limit of its own: it processes thousands of messages in one call, and answers each
    /// KeyUpdate.
    private var allowance = MessageAllowance()
    private let clock: @Sendable () -> Int
    var work: EngineWork

    /// - Parameter clock: Nanoseconds that never go back.
    init(
        bio: EngineBIO, isServer: Bool, expectedName: String?, gate: TrustGate, resumption: ClientResumption?,
        context: TLSContext, work: EngineWork, clock: @escaping @Sendable () -> Int
    ) {
        self.resumption = resumption
        self.context = context
        preSharedKeyNegotiation = context.preSharedKeys.map { PreSharedKeyNegotiation($0) }
        self.bio = bio
        self.work = work
        self.clock = clock
        self.isServer = isServer
        self.expectedName = expectedName
        self.gate = gate
    }

    var rules: TrustRules { context.rules }

    var isFlooded: Bool { allowance.isSpent }

    func sawAlert(_ alert: TLSAlert, isFatal: Bool, isOurs: Bool) {
        if isOurs {
            if isFatal, !bio.dropsOutput { sentAlert = alert }
        } else {
            if alert == .userCanceled { isCancelled = true }
            spendAllowance()
        }
    }

    private func spendAllowance() {
        allowance.spend(at: clock())
        if isFlooded { bio.becomePoisoned() }
    }

    func sawHandshakeMessage(_ type: UInt8, version: Int32) {
        spendAllowance()
        // The engine goes on from here: see rule 3 of `TLSEngine+ClientAuthentication.swift`.
        if isAwaitingClient, type == UInt8(SSL3_MT_FINISHED) { bio.isHeld = true }
        if !isEstablished, isServer, version == TLS1_2_VERSION, type == UInt8(SSL3_MT_CERTIFICATE_VERIFY), gate.isUndecided {
            // This is the client's last message before its Finished. The server's own Finished waits for the
            // decision.
            bio.isHeld = true
        }
    }

    /// Passes the faults of a chain to the gate: a revocation first, since nothing is graver.
    func judge(_ chain: [Certificate], _ faults: [PeerTrust.Verdict]) -> TrustGate.Ruling {
        let first = faults.firstIndex(where: \.isRevocation) ?? 0
        let verdict = faults.isEmpty ? .trusted : faults[first]
        let others = faults.indices.filter { $0 != first }.map { faults[$0] }
        resumption?.judged(verdict, others)
        return gate.judge(trust(chain, verdict, otherFaults: others))
    }

    /// Refuses a chain without a pinned key.
    func refuseForPins(_ chain: [Certificate], _ fault: PeerTrust.Verdict) -> TrustGate.Ruling {
        gate.overrule(trust(chain, fault))
        return .refuse
    }

    /// Judges the OCSP response that the server has stapled, or that it has stapled none. Returns false to
    /// refuse.
    func judgeStatus(_ response: UnsafeBufferPointer<UInt8>?) -> Bool {
        guard let status = stapledStatus else { return true }
        stapledStatus = nil
        guard let fault = status.fault(in: response) else {
            if let response { evidenceEnds(status.end(of: Array(response))) }
            return true
        }
        gate.overrule(trust([status.leaf], fault))
        return false
    }

    /// A proof that counted for the verdict ends, in seconds since 1970.
    func evidenceEnds(_ end: Int) {
        ticketFacts.evidenceEnd = min(ticketFacts.evidenceEnd ?? end, end)
        resumption?.evidenceEnds(Date(timeIntervalSince1970: TimeInterval(end)))
    }

    /// Passes to the gate what counts instead of certificates, when OpenSSL's handshake is complete.
    func judgeEvidence(of ssl: OpaquePointer) {
        if let identity = preSharedKeyNegotiation?.provenIdentity(on: ssl) { return gate.accept(preSharedKey: identity) }
        if SSL_session_reused(ssl) == 1 { judgeResumedSession(of: ssl) }
    }

    /// Passes the verdict of the resumed session to the gate: OpenSSL verifies nothing then.
    private func judgeResumedSession(of ssl: OpaquePointer) {
        guard gate.ruling == nil else { return }
        if let session = resumption?.offered {
            _ = gate.judge(trust(session.peerCertificates, session.verdict, otherFaults: session.otherFaults))
        } else if isServer, SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE, let leaf = SSL_get0_peer_certificate(ssl) {
            // Our own ticket: we issue it only after a positive verdict (SessionTickets, rule 7).
            _ = gate.judge(trust([Certificate(sharing: leaf)], .trusted))
        }
    }

    /// Refuses a chain that OpenSSL does not verify, or does not even decode.
    @discardableResult
    func refuse(_ chain: [Certificate], _ verdict: PeerTrust.Verdict) -> TrustGate.Ruling {
        gate.refuse(trust(chain, verdict))
    }

    func trust(
        _ chain: [Certificate], _ verdict: PeerTrust.Verdict, otherFaults: [PeerTrust.Verdict] = [], publicKey: [UInt8]? = nil
    ) -> PeerTrust {
        PeerTrust(
            peer: isServer ? .client : .server, chain: chain, verdict: verdict, otherFaults: otherFaults,
            serverName: expectedName, publicKey: publicKey)
    }

    /// Applies a ruling of the gate to the verification; returns what the verify callback returns.
    func apply(_ ruling: TrustGate.Ruling, to store: OpaquePointer, on ssl: OpaquePointer) -> Int32 {
        // OpenSSL would take an error that the verification has left in the queue for one of the handshake.
        if ruling != .refuse { OpenSSLError.clearQueue() }
        switch ruling {
        case .accept:
            X509_STORE_CTX_set_error(store, X509_V_OK)
            return 1
        case .refuse:
            X509_STORE_CTX_set_error(store, refusalCode)
            return 0
        case .undecided:
            X509_STORE_CTX_set_error(store, X509_V_OK)
            // On a server this call would accept the chain silently and for good. There the engine holds
            // everything back instead (TrustGate, rule 6).
            if !isServer, COpenSSL_setRetryVerify(ssl) <= 0 { return 0 }
            return 1
        }
    }

    /// OpenSSL's own reason, or the reason that becomes the alert bad_certificate.
    private var refusalCode: Int32 {
        switch gate.refusal {
        case .byVerification(let trust), .byDecision(let trust, _):
            // OpenSSL has no code of its own for pins, and no alert for this one.
            if case .untrusted(_, let code, _) = trust.verdict, code != VerifiedChain.pinMismatch { return code }
            return X509_V_ERR_CERT_REJECTED
        case .byExcess: return X509_V_ERR_CERT_REJECTED
        // Becomes the alert handshake_failure.
        case .withoutPreSharedKey: return X509_V_ERR_APPLICATION_VERIFICATION
        // Becomes the alert unsupported_certificate.
        case .withoutRawPublicKey: return X509_V_ERR_INVALID_PURPOSE
        case .unexpectedPublicKey: return COPENSSL_UNTRUSTED_RAW_KEY
        case nil: return X509_V_ERR_UNSPECIFIED
        }
    }
}

internal import COpenSSL
internal import FoundationEssentials

/// Brings the evidence about a peer (a chain, a raw key, a pre-shared key, the verdict of a session) to the
/// trust gate, by the rules of the settings.
///
/// A class, because OpenSSL calls back while it verifies.
final class Judge {
    let isServer: Bool
    /// The name that the peer's certificate must be for, if a name is expected.
    let expectedName: String?
    var gate: TrustGate
    /// The rules that this library checks itself; on a server by the settings of the name that the client
    /// asks for.
    private(set) var rules: TrustRules
    /// The proof that the settings require of the peer.
    private(set) var proof: TLSProof
    private(set) var stapling: TLSOCSPStapling
    /// The sessions of a client; nil on a server, and on a client that resumes nothing.
    let resumption: ClientResumption?
    /// Whether a pinned key is in the verified chain; nil if it was not looked for.
    var matchesPins: Bool?
    /// The faults that OpenSSL has found in a chain, while it verifies that.
    var foundFaults: [PeerTrust.Verdict] = []
    /// The check of a stapled response; nil if none was asked for, and for a chain that is not trusted.
    var stapledStatus: StapledStatus?
    /// When the first proof ends that the peer may be trusted: the certificates of its chain, and the lists
    /// by which they are not revoked. In seconds since 1970; nil without one.
    private(set) var evidenceEnd: Int?

    init(
        isServer: Bool, expectedName: String?, gate: TrustGate, domain: SecurityDomain, resumption: ClientResumption?
    ) {
        self.isServer = isServer
        self.expectedName = expectedName
        self.gate = gate
        rules = domain.rules
        proof = domain.proof
        stapling = domain.stapling
        self.resumption = resumption
    }

    /// A server goes on with the settings of a name.
    func adopt(_ domain: SecurityDomain) {
        (rules, proof, stapling) = (domain.rules, domain.proof, domain.stapling)
    }

    /// Another certificate of the same peer is judged: the facts about the one before count no longer.
    func begin(with gate: TrustGate) {
        self.gate = gate
        matchesPins = nil
        stapledStatus = nil
    }

    // MARK: - Verification

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

    /// Refuses a chain that OpenSSL does not verify, or does not even decode.
    @discardableResult
    func refuse(_ chain: [Certificate], _ verdict: PeerTrust.Verdict) -> TrustGate.Ruling {
        gate.refuse(trust(chain, verdict))
    }

    /// A proof that counted for the verdict ends, in seconds since 1970.
    func evidenceEnds(_ end: Int) {
        evidenceEnd = min(evidenceEnd ?? end, end)
        resumption?.evidenceEnds(Date(timeIntervalSince1970: TimeInterval(end)))
    }

    func trust(
        _ chain: [Certificate], _ verdict: PeerTrust.Verdict, otherFaults: [PeerTrust.Verdict] = [], publicKey: [UInt8]? = nil
    ) -> PeerTrust {
        PeerTrust(
            peer: isServer ? .client : .server, chain: chain, verdict: verdict, otherFaults: otherFaults,
            serverName: expectedName, publicKey: publicKey)
    }

    // MARK: - Evidence instead of certificates

    /// Passes to the gate what counts instead of certificates, when OpenSSL's handshake is complete.
    ///
    /// - Parameter key: The shared key that both sides have used.
    func judgeEvidence(of ssl: OpaquePointer, sharedKey key: KeyProof?) {
        if let key { return gate.accept(key) }
        if SSL_session_reused(ssl) == 1 { judgeResumedSession(of: ssl) }
    }

    /// A client that offers a session stops at the ServerHello, which says whether it is resumed, if someone
    /// is to be asked about it: OpenSSL would go on to the client's Finished. It sends no early data.
    var stopsAtServerHello: Bool { gate.asks && gate.ruling == nil && resumption?.offered != nil }

    /// Bytes of the peer are held back: whether that goes on. A client has stopped at the ServerHello, and
    /// passes a session that is resumed to the gate; without one it may go on.
    func stays(atServerHelloOf ssl: OpaquePointer) -> Bool {
        if isServer { return true }
        if SSL_session_reused(ssl) == 1, !TLSProof.usesSharedKey(ssl) { judgeResumedSession(of: ssl) }
        return gate.isUndecided
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

    // MARK: - OpenSSL's answer

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
            if case .untrusted(_, let code, _) = trust.verdict, code != PinnedKeys.mismatch { return code }
            return X509_V_ERR_CERT_REJECTED
        case .byExcess: return X509_V_ERR_CERT_REJECTED
        case .byKey(let fault): return fault.verifyCode
        case nil: return X509_V_ERR_UNSPECIFIED
        }
    }
}

internal import COpenSSL
internal import FoundationEssentials

/// Collects the evidence about a peer (a chain, a raw key, a pre-shared key, or the verdict stored in a
/// session), applies the rules of the settings, and passes the result to the trust gate.
///
/// A class, because OpenSSL calls back during verification.
final class Judge {
    let isServer: Bool
    /// The name that the peer's certificate must match, if a name is expected.
    let expectedName: String?
    var gate: TrustGate
    /// The rules that this library checks itself. On a server, they are from the settings for the requested
    /// server name.
    private(set) var rules: TrustRules
    private(set) var proof: TLSProof
    private(set) var stapling: TLSOCSPStapling
    /// A client's sessions, or `nil` on a server and on a client without resumption.
    let resumption: ClientResumption?
    /// The TLSA records that the server must match. `nil` if the settings use no records.
    var dane: DANEVerification?
    /// Whether a pinned key is in the verified chain, or `nil` if the chain was not checked for pins.
    var matchesPins: Bool?
    /// The faults that OpenSSL has found so far in the current verification.
    var foundFaults: [PeerTrust.Verdict] = []
    /// The check of a stapled response, or `nil` if no response was requested or the chain is not trusted.
    var stapledStatus: StapledStatus?
    /// The earliest expiry of the evidence for trust: the chain's certificates, and the lists that prove they
    /// are not revoked. In seconds since 1970, or `nil` if no evidence was used.
    private(set) var evidenceEnd: Int?

    /// Whether the peer is rejected without a proof that its certificate is not revoked.
    var requiresStatus: Bool { rules.revocation != nil || stapling == .required }

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

    /// Switches a server to the settings for a server name.
    func adopt(_ domain: SecurityDomain) {
        (rules, proof, stapling) = (domain.rules, domain.proof, domain.stapling)
    }

    /// Starts over for another certificate of the same peer, and discards the facts about the previous
    /// certificate.
    func begin(with gate: TrustGate) {
        self.gate = gate
        matchesPins = nil
        stapledStatus = nil
    }

    // MARK: - Verification

    /// Passes the faults of a chain to the gate. A revocation is passed as the main fault, because it is the
    /// most serious.
    ///
    /// - Parameter path: The chain that OpenSSL built, to which the depths of the faults refer.
    func judge(
        _ chain: [TLSCertificate], _ faults: [PeerTrust.Verdict], path: [TLSCertificate]
    ) -> TrustGate.Answer {
        let first = faults.firstIndex(where: \.isRevocation) ?? 0
        let verdict = faults.isEmpty ? .trusted : faults[first]
        let others = faults.indices.filter { $0 != first }.map { faults[$0] }
        resumption?.judged(verdict, others)
        return gate.judge(trust(chain, verdict, otherFaults: others, path: path))
    }

    func refuseForPins(_ chain: [TLSCertificate], _ fault: PeerTrust.Verdict) -> TrustGate.Answer {
        gate.overrule(trust(chain, fault))
        return .refuse
    }

    /// Rejects a chain before OpenSSL verifies it or even decodes it.
    @discardableResult
    func refuse(_ chain: [TLSCertificate], _ verdict: PeerTrust.Verdict) -> TrustGate.Answer {
        gate.refuse(trust(chain, verdict))
    }

    /// Records the expiry of evidence that contributed to the verdict, in seconds since 1970.
    func evidenceEnds(_ end: Int) {
        evidenceEnd = min(evidenceEnd ?? end, end)
        resumption?.evidenceEnds(Date(timeIntervalSince1970: TimeInterval(end)))
    }

    func trust(
        _ chain: [TLSCertificate], _ verdict: PeerTrust.Verdict, otherFaults: [PeerTrust.Verdict] = [],
        path: [TLSCertificate] = [], publicKey: [UInt8]? = nil
    ) -> PeerTrust {
        PeerTrust(
            isServer ? .client : .server, chain, verdict, otherFaults, path: path, serverName: expectedName,
            publicKey: publicKey)
    }

    // MARK: - Evidence other than certificates

    /// Passes evidence other than certificates to the gate, after OpenSSL's handshake is complete.
    ///
    /// - Parameter key: The shared key that both sides used.
    func judgeEvidence(of ssl: OpaquePointer, sharedKey key: KeyProof?) {
        if let key { return gate.accept(key) }
        if SSL_session_reused(ssl) == 1 { judgeResumedSession(of: ssl) }
    }

    /// Whether OpenSSL must stop at the ServerHello. This is necessary if a client offers a session and the
    /// trust callback has to decide about it: OpenSSL would otherwise continue to the client's Finished. A
    /// client that stops at the ServerHello sends no early data.
    var stopsAtServerHello: Bool { gate.asks && gate.ruling == nil && resumption?.offered != nil }

    /// Whether the peer's bytes are still held back. A client stopped at the ServerHello passes a resumed
    /// session to the gate, and continues if the session was not resumed.
    func stays(atServerHelloOf ssl: OpaquePointer) -> Bool {
        if isServer { return true }
        if SSL_session_reused(ssl) == 1, !TLSProof.usesSharedKey(ssl) { judgeResumedSession(of: ssl) }
        return gate.isUndecided
    }

    /// Passes the verdict of the resumed session to the gate. OpenSSL does not verify certificates during
    /// resumption.
    private func judgeResumedSession(of ssl: OpaquePointer) {
        guard gate.ruling == nil else { return }
        if let session = resumption?.offered {
            _ = gate.judge(trust(session.peerCertificates, session.verdict, otherFaults: session.otherFaults))
        } else if isServer, SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE, let leaf = SSL_get0_peer_certificate(ssl) {
            // This server's own ticket, which is issued only after a positive verdict (SessionTickets, rule
            // 7).
            _ = gate.judge(trust([TLSCertificate(sharing: leaf)], .trusted))
        }
    }

    // MARK: - Results for OpenSSL's callback

    /// Applies the gate's ruling to the verification, and returns the result for OpenSSL's verify callback.
    func apply(_ ruling: TrustGate.Answer, to store: OpaquePointer, on ssl: OpaquePointer) -> Int32 {
        // OpenSSL would mistake an error left in the queue by the verification for a handshake error.
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
            // On a server, this call would silently and permanently accept the chain. The engine holds all
            // data back instead (TrustGate, rule 6).
            if !isServer, COpenSSL_setRetryVerify(ssl) <= 0 { return 0 }
            return 1
        }
    }

    /// OpenSSL's own code, or a code that results in the alert bad_certificate.
    private var refusalCode: Int32 {
        switch gate.refusal {
        case .byVerification(let trust), .byDecision(let trust, _):
            // OpenSSL has no dedicated code for pins, and no alert for `PinnedKeys.mismatch`.
            if case .untrusted(_, let code, _) = trust.verdict, code != PinnedKeys.mismatch { return code }
            return X509_V_ERR_CERT_REJECTED
        case .byExcess: return X509_V_ERR_CERT_REJECTED
        case .byKey(let fault): return fault.verifyCode
        case nil: return X509_V_ERR_UNSPECIFIED
        }
    }
}

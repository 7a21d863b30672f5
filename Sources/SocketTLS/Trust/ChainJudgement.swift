// Rules for judging a chain:
//  1. OpenSSL stops at the first fault, unless the trust callback may overrule it (`.manual`). In this mode
//     all evidence is judged, so that one fault cannot hide another.
//  2. A chain without a pinned key is rejected in every mode, without calling the trust callback. If a chain
//     has faults other than its name or dates, only the peer's own key is compared with the pins, because
//     anyone can send the other certificates.
//  3. The certificate status arrives later, and is judged in every mode (`Judge.expectStatus`).
//  4. With TLSA records, OpenSSL compares the chain with them. No mode overrules the result. If the policy
//     for records accepts an unauthenticated server, all evidence is judged, as in rule 1.

internal import COpenSSL

extension Judge {
    func judgeChain(in store: OpaquePointer, of ssl: OpaquePointer) -> TrustGate.Answer {
        let chain = TLSCertificate.certificates(sharing: X509_STORE_CTX_get0_untrusted(store))
        if let excess = CertificateFault.excess(in: chain) { return refuse(chain, excess) }
        var faults = verify(store, chain)
        guard faults.isEmpty || judgesEverything else {
            return judge(chain, faults, path: VerifiedChain(of: store).copies)
        }
        let verified = VerifiedChain(of: store)
        let trusted = faults.allSatisfy(\.leavesPathTrusted) ? verified : verified.leaf
        let record = dane?.match(on: ssl)
        faults += rules.faults(in: verified, isNamed: record?.usage == .daneEE)
        if let fault = faultOfMatch(record, chain) { faults.append(fault) }
        matchesPins = rules.pins?.match(trusted)
        // Without an issuer, the OCSP response cannot be checked.
        if stapling != .none, record?.usage != .daneEE { expectStatus(of: verified) }
        if faults.isEmpty, let end = verified.end { evidenceEnds(end) }
        if let end = rules.revocation?.end(for: verified, in: store) { evidenceEnds(end) }
        if let fault = rules.pins?.fault(in: trusted) {
            if faults.isEmpty || judgesEverything { return refuseForPins(chain, fault) }
        }
        return judge(chain, faults, path: faults.isEmpty ? [] : verified.copies)
    }

    /// Whether a fault does not end the verification (rules 1 and 4).
    private var judgesEverything: Bool { gate.evaluation == .manual || gate.acceptsUntrusted }

    /// Returns OpenSSL's faults in the order found: all of them if a fault does not end the verification,
    /// otherwise only the first.
    private func verify(_ store: OpaquePointer, _ chain: [TLSCertificate]) -> [PeerTrust.Verdict] {
        foundFaults = []
        if judgesEverything { X509_STORE_CTX_set_verify_cb(store) { Judge.note($0, $1) } }
        let isVerified = X509_verify_cert(store) == 1
        defer { foundFaults = [] }
        if !foundFaults.isEmpty { return foundFaults }
        if isVerified { return [] }
        let fault = CertificateFault(in: store, leaf: chain.first, expectedName).verdict
        return [dane?.explain(fault, chain) ?? fault]
    }

    /// OpenSSL's verify callback, which records a fault and continues.
    private static func note(_ isGood: Int32, _ store: OpaquePointer?) -> Int32 {
        guard isGood != 1, let store else { return isGood }
        let data = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx())
        guard let data, let judge = EngineCallbacks.facts(of: OpaquePointer(data))?.judge else { return 0 }
        let leaf = X509_STORE_CTX_get0_cert(store).map { TLSCertificate(sharing: $0) }
        let fault = CertificateFault(in: store, leaf: leaf, judge.expectedName).verdict
        guard judge.foundFaults.count < faultLimit else { return 0 }
        if !judge.foundFaults.contains(fault) { judge.foundFaults.append(fault) }
        return 1
    }

    /// More faults than a chain of ten certificates can have.
    static let faultLimit = 64
}

extension Judge {
    /// Judges the raw public key that OpenSSL is verifying.
    func judgeKey(_ key: OpaquePointer, in store: OpaquePointer) -> TrustGate.Answer {
        guard let dane, !dane.usable.isEmpty else { return judgeKey(key) }
        return judgeKey(key) { _ in faultOfKey(in: store) }
    }
}

extension PeerTrust.Verdict {
    /// Whether the signatures are valid and lead to a trusted root.
    var leavesPathTrusted: Bool {
        guard case .untrusted(_, let code, _) = self else { return true }
        switch code {
        case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH, X509_V_ERR_CERT_HAS_EXPIRED,
            X509_V_ERR_CERT_NOT_YET_VALID:
            return true
        default: return false
        }
    }
}

// Rules of the gate:
//  1. OpenSSL judges the chain once; when its callback runs again, the gate repeats its ruling.
//  2. `.builtIn`: OpenSSL's verdict is the decision; there is no question.
//  3. `.delegate`: OpenSSL's no is the decision; its yes is a question.
//  4. `.manual`: always a question.
//  5. A question is asked once, and the first decision counts. A decision without an open question changes
//     nothing.
//  6. While a question is open, OpenSSL pauses the client's handshake. Where the client resumes a session,
//     the engine pauses it, at the ServerHello. OpenSSL cannot pause a server: there the certificate passes
//     for the moment, and the engine lets no data through in either direction until the decision.
//  7. A peer without a certificate is not a question. Only a server that does not require a certificate
//     admits it.
//  8. A chain that may not even be verified, such as one that is too long, is refused in every mode.
//  9. Evidence after the decision, such as a stapled OCSP response, can refuse the peer in every mode.
// 10. Settings that are chosen by name do not skip the question that the settings around them ask.
// 11. A peer that has proved to have a shared key is accepted for that, without a question: it shows no
//     certificate. The proof counts only before anything else was judged.
// 12. Where a key is required, certificates are refused before they are verified, in every mode. Where both
//     sides must have it, a peer that shows nothing is refused too.
// 13. A public key without a certificate is expected or refused, in every mode: another one is never a
//     question. About an expected one rules 2, 5, 6 and 10 hold, and `.manual` is like `.delegate`.

/// Holds the decision about the peer's certificate, and the rules for it.
struct TrustGate {
    let evaluation: TLSTrustEvaluation
    /// The kind of key without which no peer is accepted that has to prove who it is.
    private let requiredKey: KeyProof.Kind?
    private var state = State.unjudged

    init(_ evaluation: TLSTrustEvaluation, requiredKey: KeyProof.Kind? = nil) {
        self.evaluation = evaluation
        self.requiredKey = requiredKey
    }

    init(_ settings: TLSSettingValues) {
        self.init(settings, settings.trustEvaluation)
    }

    private init(_ settings: TLSSettingValues, _ evaluation: TLSTrustEvaluation) {
        self.init(evaluation, requiredKey: settings.requiredKey)
    }

    /// The gate of settings that were chosen by name (rule 10).
    func replaced(by settings: TLSSettingValues) -> TrustGate {
        let asks = settings.trustEvaluation == .builtIn && evaluation != .builtIn
        return TrustGate(settings, asks ? .delegate : settings.trustEvaluation)
    }

    /// A gate for another certificate of the same peer. `asks`: someone is asked even if OpenSSL alone would
    /// decide.
    func renewed(asks: Bool) -> TrustGate {
        TrustGate(asks && !self.asks ? .delegate : evaluation, requiredKey: requiredKey)
    }

    /// Someone besides OpenSSL decides.
    var asks: Bool { evaluation != .builtIn }

    private enum State {
        case unjudged
        /// A question about a certificate, or about a key.
        indirect case asking(PeerTrust, KeyProof?, isPut: Bool)
        case accepted
        indirect case acceptedFor(KeyProof)
        indirect case refused(Refusal)
    }

    /// The reason for a refusal.
    enum Refusal: Equatable {
        case byVerification(PeerTrust)
        /// The chain is more than this side verifies.
        case byExcess(PeerTrust)
        case byDecision(PeerTrust, TrustRefusal)
        /// The peer's key is not expected, or a required one is missing.
        case byKey(ProofFault)
    }

    /// The answer of OpenSSL's verify callback.
    enum Ruling: Equatable {
        case accept
        case refuse
        case undecided
    }

    /// The ruling, or nil if the chain has not been judged.
    var ruling: Ruling? {
        switch state {
        case .unjudged: nil
        case .asking: .undecided
        case .accepted, .acceptedFor: .accept
        case .refused: .refuse
        }
    }

    var refusal: Refusal? {
        if case .refused(let refusal) = state { return refusal }
        return nil
    }

    /// A question is open, whether or not it has been asked.
    var isUndecided: Bool {
        if case .asking = state { return true }
        return false
    }

    /// A question has been asked and waits for its decision.
    var isAwaitingDecision: Bool {
        if case .asking(_, _, isPut: true) = state { return true }
        return false
    }

    /// Takes OpenSSL's verdict on the peer's chain.
    mutating func judge(_ trust: PeerTrust) -> Ruling {
        if let ruling = ruling ?? rulingWithoutKey { return ruling }
        switch (evaluation, trust.verdict) {
        case (.builtIn, .trusted): state = .accepted
        case (.builtIn, .untrusted), (.delegate, .untrusted): state = .refused(.byVerification(trust))
        case (.delegate, .trusted), (.manual, _): state = .asking(trust, nil, isPut: false)
        }
        return ruling ?? .refuse
    }

    /// Takes the public key in `trust`, with the reason to refuse it if it is not expected.
    mutating func judge(_ key: KeyProof, _ fault: ProofFault?, _ trust: PeerTrust) -> Ruling {
        if let ruling { return ruling }
        if let requiredKey, requiredKey != key.kind {
            state = .refused(.byKey(requiredKey.missing))
        } else if let fault {
            state = .refused(.byKey(fault))
        } else {
            state = evaluation == .builtIn ? .acceptedFor(key) : .asking(trust, key, isPut: false)
        }
        return ruling ?? .refuse
    }

    /// Refuses a chain that may not be verified at all.
    mutating func refuse(_ trust: PeerTrust) -> Ruling {
        state = .refused(.byExcess(trust))
        return .refuse
    }

    /// Refuses a peer for what came after its certificates, whatever was decided about them.
    mutating func overrule(_ trust: PeerTrust) {
        state = .refused(.byVerification(trust))
    }

    /// Whether the connection may be established. `isOptional`: this side does not require a certificate of
    /// the peer.
    func admits(isOptional: Bool) -> Bool {
        switch state {
        case .unjudged: isOptional && requiredKey?.isShared != true
        case .asking, .refused: false
        case .accepted: requiredKey == nil
        case .acceptedFor(let key): requiredKey == nil || requiredKey == key.kind
        }
    }

    /// Takes the proof that the peer has a shared key.
    mutating func accept(_ key: KeyProof) {
        guard case .unjudged = state else { return }
        state = .acceptedFor(key)
    }

    /// The key for which the peer was accepted.
    var acceptedKey: KeyProof? {
        if case .acceptedFor(let key) = state { return key }
        return nil
    }

    /// The value of that key, if it is of this kind.
    func accepted(_ kind: KeyProof.Kind) -> [UInt8]? {
        acceptedKey.flatMap { $0.kind == kind ? $0.value : nil }
    }

    /// Refuses a peer that shows a certificate where a key is required; nil where none is.
    var rulingWithoutKey: Ruling? {
        mutating get {
            guard let requiredKey, case .unjudged = state else { return nil }
            state = .refused(.byKey(requiredKey.missing))
            return .refuse
        }
    }

    /// Why `admits` is false when OpenSSL's handshake is complete.
    var admissionError: TLSError {
        // Clients with OpenSSL 3.2 to 3.4 continued after such a refusal of a raw key (CVE-2024-12797).
        if case .byKey(let fault) = refusal { return fault.error }
        if let requiredKey { return requiredKey.missing.error }
        return TLSError(.certificateRejected, "The peer showed no certificate that was accepted.")
    }

    /// Returns the open question once.
    mutating func takeQuestion() -> PeerTrust? {
        guard case .asking(let trust, let key, isPut: false) = state else { return nil }
        state = .asking(trust, key, isPut: true)
        return trust
    }

    /// Decides the open question. Returns false without one.
    mutating func decide(_ accepted: Bool, _ refusal: TrustRefusal) -> Bool {
        guard case .asking(let trust, let key, isPut: true) = state else { return false }
        if accepted {
            state = key.map { .acceptedFor($0) } ?? .accepted
        } else {
            state = .refused(.byDecision(trust, refusal))
        }
        return true
    }
}

/// Why a trust question ended with a refusal.
package enum TrustRefusal: Sendable, Hashable {
    /// The trust callback refused the peer.
    case rejected
    /// The trust callback did not answer in time.
    case timedOut
}

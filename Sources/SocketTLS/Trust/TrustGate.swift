// Rules of the gate. A "question" is a decision that the trust callback must make.
//  1. OpenSSL judges the chain once. If its callback runs again, the gate repeats its ruling.
//  2. `.builtIn`: OpenSSL's verdict is final, without a question.
//  3. `.delegate`: A rejection by OpenSSL is final. An acceptance opens a question.
//  4. `.manual`: A question is always opened.
//  5. A question is delivered once, and the first decision is final. A decision without an open question has
//     no effect.
//  6. While a question is open, OpenSSL pauses the client's handshake. If the client resumes a session, the
//     engine pauses the handshake at the ServerHello. OpenSSL cannot pause a server: the certificate passes
//     provisionally, and the engine blocks data in both directions until the decision.
//  7. A peer without a certificate does not open a question. Only a server that does not require a
//     certificate accepts this peer.
//  8. A chain that must not even be verified, for example because it is too long, is rejected in every mode.
//  9. Evidence after the decision, such as a stapled OCSP response, can reject the peer in every mode.
// 10. Settings selected for the client's server name (SNI) cannot skip a question that the settings
//     containing `serverNames` require.
// 11. A peer that has proved possession of a shared key is accepted without a question, because it sends no
//     certificate. The proof applies only if no other evidence has been judged yet.
// 12. If a key is required, certificates are rejected before they are verified, in every mode. If the
//     required key is a shared key, a peer without any authentication is rejected too.
// 13. A raw public key is either expected or rejected, in every mode. An unexpected key never opens a
//     question. For an expected key, rules 2, 5, 6 and 10 apply, and `.manual` behaves like `.delegate`.
// 14. If the program has chosen not to authenticate the peer (`acceptsUntrusted`), OpenSSL's verdict on the
//     chain decides nothing. Rules 3, 8 and 9 apply otherwise unchanged.

/// The decision about the peer's certificate, and the rules for it.
struct TrustGate {
    let evaluation: TLSTrustEvaluation
    /// The kind of key that every authenticated peer must have, if the settings require a key.
    private let requiredKey: KeyProof.Kind?
    private var state = State.unjudged
    /// Whether the peer need not be authenticated (rule 14).
    var acceptsUntrusted = false

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

    /// Returns the gate for the settings selected for the client's server name (rule 10).
    func replaced(by settings: TLSSettingValues) -> TrustGate {
        let asks = settings.trustEvaluation == .builtIn && evaluation != .builtIn
        return TrustGate(settings, asks ? .delegate : settings.trustEvaluation)
    }

    /// Returns a gate for another certificate of the same peer.
    ///
    /// - Parameter asks: Whether to open a question even if OpenSSL's verdict would be final.
    func renewed(asks: Bool) -> TrustGate {
        TrustGate(asks && !self.asks ? .delegate : evaluation, requiredKey: requiredKey)
    }

    /// Whether the trust callback takes part in the decision.
    var asks: Bool { evaluation != .builtIn }

    private enum State {
        case unjudged
        /// A question about a certificate or a key.
        indirect case asking(PeerTrust, KeyProof?, isPut: Bool)
        case accepted
        indirect case acceptedFor(KeyProof)
        indirect case refused(Refusal)
    }

    enum Refusal: Equatable {
        case byVerification(PeerTrust)
        /// The chain exceeds the limits that this side sets for verification.
        case byExcess(PeerTrust)
        case byDecision(PeerTrust, TrustRefusal)
        /// The peer's key is not expected, or a required key is missing.
        case byKey(ProofFault)
    }

    /// The result for OpenSSL's verify callback.
    enum Answer: Equatable {
        case accept
        case refuse
        case undecided
    }

    /// The ruling, or `nil` if the chain has not been judged.
    var ruling: Answer? {
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

    /// Whether a question is open, delivered or not.
    var isUndecided: Bool {
        if case .asking = state { return true }
        return false
    }

    /// Whether a question was delivered and its decision is pending.
    var isAwaitingDecision: Bool {
        if case .asking(_, _, isPut: true) = state { return true }
        return false
    }

    /// Records OpenSSL's verdict on the peer's chain.
    mutating func judge(_ trust: PeerTrust) -> Answer {
        if let ruling = ruling ?? rulingWithoutKey { return ruling }
        switch (evaluation, trust.verdict) {
        case (.builtIn, .untrusted) where acceptsUntrusted: state = .accepted
        case (.delegate, .untrusted) where acceptsUntrusted: state = .asking(trust, nil, isPut: false)
        case (.builtIn, .trusted): state = .accepted
        case (.builtIn, .untrusted), (.delegate, .untrusted): state = .refused(.byVerification(trust))
        case (.delegate, .trusted), (.manual, _): state = .asking(trust, nil, isPut: false)
        }
        return ruling ?? .refuse
    }

    /// Judges the raw public key in `trust`. `fault` is the reason to reject the key, or `nil` if the key is
    /// expected.
    mutating func judge(_ key: KeyProof, _ fault: ProofFault?, _ trust: PeerTrust) -> Answer {
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

    /// Rejects a chain that must not be verified at all.
    mutating func refuse(_ trust: PeerTrust) -> Answer {
        state = .refused(.byExcess(trust))
        return .refuse
    }

    /// Rejects a peer because of evidence that arrived after its certificates, regardless of the earlier
    /// decision.
    mutating func overrule(_ trust: PeerTrust) {
        state = .refused(.byVerification(trust))
    }

    /// Whether the connection may be established.
    ///
    /// - Parameter isOptional: Whether this side accepts a peer without a certificate.
    func admits(isOptional: Bool) -> Bool {
        switch state {
        case .unjudged: isOptional && requiredKey?.isShared != true
        case .asking, .refused: false
        case .accepted: requiredKey == nil
        case .acceptedFor(let key): requiredKey == nil || requiredKey == key.kind
        }
    }

    /// Records the peer's proof of possession of a shared key.
    mutating func accept(_ key: KeyProof) {
        guard case .unjudged = state else { return }
        state = .acceptedFor(key)
    }

    var acceptedKey: KeyProof? {
        if case .acceptedFor(let key) = state { return key }
        return nil
    }

    /// Returns the value of the accepted key, if the key is of this kind.
    func accepted(_ kind: KeyProof.Kind) -> [UInt8]? {
        acceptedKey.flatMap { $0.kind == kind ? $0.value : nil }
    }

    /// Rejects a peer that sent a certificate although a key is required. `nil` if no key is required.
    var rulingWithoutKey: Answer? {
        mutating get {
            guard let requiredKey, case .unjudged = state else { return nil }
            state = .refused(.byKey(requiredKey.missing))
            return .refuse
        }
    }

    /// The reason that `admits` returned `false` after OpenSSL's handshake was complete.
    var admissionError: TLSError {
        // OpenSSL 3.2 to 3.4 clients continued after such a rejection of a raw key (CVE-2024-12797).
        if case .byKey(let fault) = refusal { return fault.error }
        if let requiredKey { return requiredKey.missing.error }
        return TLSError(.certificateRejected, "the peer sent no acceptable certificate")
    }

    /// Returns the open question, but only once.
    mutating func takeQuestion() -> PeerTrust? {
        guard case .asking(let trust, let key, isPut: false) = state else { return nil }
        state = .asking(trust, key, isPut: true)
        return trust
    }

    /// Decides the open question. Returns false if no question is open.
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

/// The reason that the peer was not trusted.
package enum TrustRefusal: Sendable, Hashable {
    /// The trust callback rejected the peer.
    case rejected
    /// The trust callback did not decide in time.
    case timedOut
}

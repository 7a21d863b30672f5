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
// 11. A peer that has proved to have a pre-shared key is accepted for that, without a question: it shows no
//     certificate. The proof counts only before anything else was judged.
// 12. Where a pre-shared key is required, nothing but its proof leads to acceptance: certificates are refused
//     before they are verified, and so is a peer that shows none.
// 13. A raw public key (RFC 7250) is expected or refused, in every mode: another one is never a
//     question. About an expected one rules 2, 5, 6 and 10 hold, and `.manual` is like `.delegate`.
// 14. Where raw public keys are required, certificates are refused before they are verified, in every mode.

/// Holds the decision about the peer's certificate, and the rules for it.
struct TrustGate {
    let evaluation: TLSTrustEvaluation
    private let requiresPreSharedKey: Bool
    private let requiresRawPublicKey: Bool
    private var state = State.unjudged

    init(
        _ evaluation: TLSTrustEvaluation, requiresPreSharedKey: Bool = false, requiresRawPublicKey: Bool = false
    ) {
        self.evaluation = evaluation
        self.requiresPreSharedKey = requiresPreSharedKey
        self.requiresRawPublicKey = requiresRawPublicKey
    }

    init(_ settings: TLSSettingValues) {
        self.init(settings, settings.trustEvaluation)
    }

    private init(_ settings: TLSSettingValues, _ evaluation: TLSTrustEvaluation) {
        self.init(
            evaluation, requiresPreSharedKey: settings.requiresPreSharedKey,
            requiresRawPublicKey: settings.requiresRawPublicKey)
    }

    /// The gate of settings that were chosen by name (rule 10).
    func replaced(by settings: TLSSettingValues) -> TrustGate {
        let asks = settings.trustEvaluation == .builtIn && evaluation != .builtIn
        return TrustGate(settings, asks ? .delegate : settings.trustEvaluation)
    }

    /// A gate for another certificate of the same peer. `asks`: someone is asked even if OpenSSL alone would
    /// decide.
    func renewed(asks: Bool) -> TrustGate {
        TrustGate(
            asks && !self.asks ? .delegate : evaluation, requiresPreSharedKey: requiresPreSharedKey,
            requiresRawPublicKey: requiresRawPublicKey)
    }

    /// Someone besides OpenSSL decides.
    var asks: Bool { evaluation != .builtIn }

    private enum State {
        case unjudged
        indirect case asking(PeerTrust, isPut: Bool)
        case accepted
        indirect case acceptedByPreSharedKey(identity: [UInt8])
        indirect case acceptedByPublicKey([UInt8])
        indirect case refused(Refusal)
    }

    /// The reason for a refusal.
    enum Refusal: Equatable {
        case byVerification(PeerTrust)
        /// The chain is more than this side verifies.
        case byExcess(PeerTrust)
        case byDecision(PeerTrust, TrustRefusal)
        /// The peer has used no pre-shared key, and may show nothing else.
        case withoutPreSharedKey
        /// The peer has shown a certificate, and may show nothing but a raw public key.
        case withoutRawPublicKey
        /// The peer has shown a raw public key that is not expected.
        case unexpectedPublicKey([UInt8])
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
        case .accepted, .acceptedByPreSharedKey, .acceptedByPublicKey: .accept
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
        if case .asking(_, isPut: true) = state { return true }
        return false
    }

    /// Takes OpenSSL's verdict on the peer's chain.
    mutating func judge(_ trust: PeerTrust) -> Ruling {
        if let ruling = ruling ?? rulingWithoutKey { return ruling }
        switch (evaluation, trust.verdict) {
        case (.builtIn, .trusted): state = .accepted
        case (.builtIn, .untrusted), (.delegate, .untrusted): state = .refused(.byVerification(trust))
        case (.delegate, .trusted), (.manual, _): state = .asking(trust, isPut: false)
        }
        return ruling ?? .refuse
    }

    /// Takes a raw public key, which is in `trust`, and whether it is expected.
    mutating func judge(publicKey key: [UInt8], isExpected: Bool, _ trust: PeerTrust) -> Ruling {
        if let ruling { return ruling }
        if requiresPreSharedKey {
            state = .refused(.withoutPreSharedKey)
        } else if !isExpected {
            state = .refused(.unexpectedPublicKey(key))
        } else {
            state = evaluation == .builtIn ? .acceptedByPublicKey(key) : .asking(trust, isPut: false)
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
        case .unjudged: isOptional && !requiresPreSharedKey
        case .asking, .refused: false
        case .accepted: !requiresPreSharedKey && !requiresRawPublicKey
        case .acceptedByPreSharedKey: !requiresRawPublicKey
        case .acceptedByPublicKey: !requiresPreSharedKey
        }
    }

    /// Takes the proof that the peer has the pre-shared key of `identity`.
    mutating func accept(preSharedKey identity: [UInt8]) {
        guard case .unjudged = state else { return }
        state = .acceptedByPreSharedKey(identity: identity)
    }

    /// The evidence of a peer that was accepted for its pre-shared key.
    var preSharedKeyIdentity: [UInt8]? {
        if case .acceptedByPreSharedKey(let identity) = state { return identity }
        return nil
    }

    /// The raw public key for which the peer was accepted.
    var acceptedPublicKey: [UInt8]? {
        if case .acceptedByPublicKey(let key) = state { return key }
        return nil
    }

    /// Refuses a peer that shows a certificate where a key is required; nil where none is.
    var rulingWithoutKey: Ruling? {
        mutating get {
            guard requiresPreSharedKey || requiresRawPublicKey, case .unjudged = state else { return nil }
            state = .refused(requiresPreSharedKey ? .withoutPreSharedKey : .withoutRawPublicKey)
            return .refuse
        }
    }

    /// Why `admits` is false when OpenSSL's handshake is complete.
    var admissionError: TLSError {
        // OpenSSL 3.2 to 3.4 has had clients that went on after a refusal of a raw key (CVE-2024-12797).
        if case .unexpectedPublicKey(let key) = refusal { return .unexpectedPublicKey(key) }
        if requiresPreSharedKey { return .withoutPreSharedKey }
        if requiresRawPublicKey { return .withoutRawPublicKey }
        return TLSError(.certificateRejected, "The peer showed no certificate that was accepted.")
    }

    /// Returns the open question once.
    mutating func takeQuestion() -> PeerTrust? {
        guard case .asking(let trust, isPut: false) = state else { return nil }
        state = .asking(trust, isPut: true)
        return trust
    }

    /// Decides the open question. Returns false without one.
    mutating func decide(_ accepted: Bool, _ refusal: TrustRefusal) -> Bool {
        guard case .asking(let trust, isPut: true) = state else { return false }
        switch (accepted, trust.publicKey) {
        case (true, nil): state = .accepted
        case (true, let key?): state = .acceptedByPublicKey(key)
        case (false, _): state = .refused(.byDecision(trust, refusal))
        }
        return true
    }
}

extension TLSError {
    static var withoutPreSharedKey: TLSError {
        TLSError(.preSharedKeyMissing, "The peer uses no pre-shared key, but the settings require one.")
    }
}

/// Why a trust question ended with a refusal.
package enum TrustRefusal: Sendable, Hashable {
    /// The trust callback refused the peer.
    case rejected
    /// The trust callback did not answer in time.
    case timedOut
}

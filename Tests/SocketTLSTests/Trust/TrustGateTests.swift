import Testing

@testable import SocketTLS

@Suite struct TrustGateTests {
    private func trust(_ isTrusted: Bool) -> PeerTrust {
        PeerTrust(
            peer: .server, chain: [], verdict: isTrusted ? .trusted : .untrusted(reason: "no", code: 20, depth: 0),
            serverName: nil)
    }

    @Test(arguments: [
        (TLSTrustEvaluation.builtIn, true, TrustGate.Answer.accept), (.builtIn, false, .refuse),
        (.delegate, true, .undecided), (.delegate, false, .refuse), (.manual, true, .undecided), (.manual, false, .undecided),
    ])
    func theModeSaysWhoDecides(mode: TLSTrustEvaluation, isTrusted: Bool, ruling: TrustGate.Answer) {
        var gate = TrustGate(mode)
        #expect(gate.ruling == nil)
        #expect(gate.judge(trust(isTrusted)) == ruling)
        #expect(gate.ruling == ruling)
        #expect(gate.isUndecided == (ruling == .undecided))
    }

    @Test func aChainIsJudgedOnce() {
        var gate = TrustGate(.builtIn)
        #expect(gate.judge(trust(true)) == .accept)
        #expect(gate.judge(trust(false)) == .accept)
    }

    @Test func aQuestionIsPutOnceAndDecidedOnce() {
        var gate = TrustGate(.manual)
        #expect(gate.takeQuestion() == nil)
        _ = gate.judge(trust(true))
        #expect(!gate.isAwaitingDecision)
        #expect(gate.takeQuestion() != nil)
        #expect(gate.takeQuestion() == nil)
        #expect(gate.isAwaitingDecision)
        let wasFirst = gate.decide(false, .rejected)
        #expect(wasFirst)
        let wasSecond = gate.decide(true, .rejected)
        #expect(!wasSecond)
        #expect(gate.ruling == .refuse)
    }

    @Test func aDecisionThatNoOneAskedForChangesNothing() {
        var gate = TrustGate(.manual)
        let beforeJudging = gate.decide(true, .rejected)
        #expect(!beforeJudging)
        _ = gate.judge(trust(true))
        let beforeAsking = gate.decide(true, .rejected)
        #expect(!beforeAsking)
        #expect(gate.ruling == .undecided)
    }

    private static let modes = [TLSTrustEvaluation.builtIn, .delegate, .manual]

    /// Rule 10.
    @Test(arguments: modes, modes)
    func settingsOfANameDoNotSkipTheQuestion(around: TLSTrustEvaluation, named: TLSTrustEvaluation) {
        var settings = TLSSettings.client(serverName: "example.org")
        settings.trustEvaluation = named
        let gate = TrustGate(around).replaced(by: settings.values)
        #expect(gate.evaluation == (named == .builtIn && around != .builtIn ? .delegate : named))
    }

    /// The mode changes only if the settings do not use a callback and one is required.
    @Test(arguments: modes) func anotherCertificateIsJudgedInTheSameMode(mode: TLSTrustEvaluation) {
        #expect(TrustGate(mode).renewed(asks: false).evaluation == mode)
        #expect(TrustGate(mode).renewed(asks: true).evaluation == (mode == .builtIn ? .delegate : mode))
    }

    /// Rule 13.
    @Test(arguments: modes) func theCallbackIsAskedAboutAnExpectedKey(mode: TLSTrustEvaluation) {
        for isAccepted in [true, false] {
            var gate = TrustGate(mode)
            let trust = PeerTrust(peer: .server, chain: [], verdict: .trusted, serverName: nil, publicKey: [7])
            let ruling = gate.judge(KeyProof(kind: .rawPublicKey, value: [7]), nil, trust)
            #expect(ruling == (mode == .builtIn ? .accept : .undecided))
            #expect((gate.takeQuestion() == nil) == (mode == .builtIn))
            guard mode != .builtIn else { continue }
            let isFirst = gate.decide(isAccepted, .rejected)
            #expect(isFirst && gate.ruling == (isAccepted ? .accept : .refuse))
            #expect(gate.accepted(.rawPublicKey) == (isAccepted ? [7] : nil))
        }
    }
}

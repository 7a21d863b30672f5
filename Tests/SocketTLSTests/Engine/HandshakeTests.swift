import SocketTLS
import Testing

@testable import SocketTLS

/// The table at the top of `Handshake.swift`, as transcripts.
struct HandshakeTests {
    /// An event in a handshake.
    private enum Event {
        case called(Handshake.Situation)
        case ended(OpenSSLCall.Answer, isHeld: Bool = false)
        case chose, established, authenticating, failed

        static let idle = Event.called(Handshake.Situation())
        static let input = Event.called(Handshake.Situation(hasInput: true))
        static let asking = Event.called(Handshake.Situation(isAsking: true, isDecidedAgainst: true, hasInput: true))
        static let decidedAgainst = Event.called(Handshake.Situation(isDecidedAgainst: true))
    }

    /// Returns the handshake's reaction to each event, if there is one.
    private func transcript(_ handshake: Handshake, _ events: Event...) -> [String] {
        var handshake = handshake
        return events.compactMap { event in
            switch event {
            case .called(let situation): return name(handshake.move(in: situation))
            case .ended(let outcome, let isHeld): return name(handshake.ended(outcome, isHeld: isHeld))
            case .chose: handshake.chose()
            case .established: handshake.establish()
            case .authenticating: handshake.authenticate()
            case .failed: handshake.fail(TLSError(.notTLS, "over"))
            }
            return nil
        }
    }

    private func name(_ value: Any) -> String {
        String(String(describing: value).prefix { $0 != "(" })
    }

    private let client = Handshake(isServer: false, choosesSettings: false)
    private let server = Handshake(isServer: true, choosesSettings: false)
    private let choosing = Handshake(isServer: true, choosesSettings: true)

    @Test func aClientBeginsAndThenWaitsForBytes() {
        #expect(
            transcript(client, .idle, .ended(.wantsRead), .idle, .input, .ended(.success), .established, .input)
                == ["step", "askEarly", "wait", "step", "judge", "finish"])
    }

    @Test func aServerWaitsForBytes() {
        #expect(
            transcript(server, .idle, .idle, .input, .ended(.wantsRead), .idle) == ["wait", "wait", "step", "askEarly", "wait"])
    }

    /// Work that OpenSSL left undone does not need new bytes.
    @Test func aStepThatStoppedForSomethingElseGoesOnWithoutBytes() {
        let stops: [(OpenSSLCall.Answer, String)] = [(.wantsTrust, "ask"), (.wantsWork, "lend"), (.wantsWrite, "wait")]
        for (outcome, sequel) in stops {
            #expect(transcript(client, .idle, .ended(outcome), .idle) == ["step", sequel, "step"])
        }
    }

    @Test func bytesThatAreHeldBackAreNoReasonToWait() {
        #expect(transcript(server, .input, .ended(.wantsRead, isHeld: true), .idle) == ["step", "askHeld", "step"])
    }

    @Test func anOpenQuestionStopsEverything() {
        #expect(transcript(client, .asking) == ["wait"])
        #expect(transcript(server, .asking) == ["wait"])
        #expect(transcript(choosing, .asking) == ["wait"])
    }

    @Test func aDecisionAgainstThePeerIsSaidEvenWithoutBytes() {
        #expect(transcript(server, .input, .ended(.wantsRead), .decidedAgainst) == ["step", "askEarly", "refuse"])
    }

    @Test func settingsAreChosenBeforeTheFirstStep() {
        #expect(
            transcript(choosing, .idle, .input, .input, .chose, .idle, .ended(.wantsRead), .chose, .idle)
                == ["wait", "choose", "choose", "step", "askEarly", "wait"])
    }

    @Test func aLaterRequestLeadsBackToTheConnection() {
        #expect(
            transcript(server, .established, .authenticating, .asking, .established, .decidedAgainst)
                == ["settleClient", "finish"])
    }

    @Test func aFailureIsFinal() {
        for outcome in [OpenSSLCall.Answer.closed, .failure([])] {
            #expect(transcript(client, .idle, .ended(outcome), .failed, .input, .asking) == ["step", "fail", "fail", "fail"])
        }
    }
}

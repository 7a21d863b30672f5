internal import AsyncSockets

/// What happens in a run about time limits, trust decisions, dialogues or connection attempts.
struct LimitPlan {
    enum Mode: Int {
        /// A socket writes to a peer that reads slowly.
        case taskWrites, delegateWrites
        /// A client decides whether to trust a server.
        case taskTrust, delegateTrust
        /// Both sides upgrade with a STARTTLS dialogue.
        case dialogue
        /// A client connects to a host with several addresses.
        case race
    }

    enum Decision: Int { case accept, reject, fail, never }

    let mode: Mode
    let decision: Decision
    /// How long the decision takes, and how long it may take. Milliseconds.
    let decisionTime: Int
    let trustTimeout: Int
    /// Whether the handshake continues after the decision, as in TLS 1.2.
    let hasLateFinish: Bool
    /// Whether a delegate decides twice.
    let decidesTwice: Bool
    /// The protocol of the dialogue.
    let dialogue: Int
    let race: RacePlan
    let isDisturbed: Bool
    /// When the disturbance happens, in steps of the schedule.
    let disturbanceStep: Int
    let disturbance: Int
    let counts: [Int]
    let link: Network.Link
    let faults: Kernel.Faults

    init(_ choices: Choices) {
        func pick(_ count: Int) -> Int { choices.pick(count, Choices.Stream.setup) }
        mode = Mode(rawValue: pick(6)) ?? .taskWrites
        decision = [.accept, .accept, .reject, .fail, .never][pick(5)]
        (decisionTime, trustTimeout) = ([0, 5, 100, 20_000][pick(4)], [30_000, 50][pick(2)])
        (decidesTwice, dialogue) = (pick(2) == 1, pick(3))
        (hasLateFinish, race) = (pick(2) == 1, RacePlan(pick))
        let isWriting = mode == .taskWrites || mode == .delegateWrites
        (isDisturbed, disturbanceStep, disturbance) = (pick(3) == 1, pick(isWriting || mode == .race ? 600 : 2_500), pick(3))
        counts = [0, 1].map { _ in [40, 1, 3_000][pick(3)] }
        link = Network.Link(
            sendCapacity: [4_096, 300, 65_536][pick(3)], receiveCapacity: [4_096, 300, 65_536][pick(3)],
            latency: UInt64([0, 1, 20][pick(3)]) * 1_000_000)
        faults = Kernel.Faults(
            interrupts: [0, 16][pick(2)], refusals: [0, 12][pick(2)], shortages: [0, 12][pick(2)],
            shortCounts: [0, 4][pick(2)], lateEvents: [0, 4][pick(2)])
    }

    var isWriting: Bool { mode == .taskWrites || mode == .delegateWrites }
    /// Whether the decision is made in time.
    var isDecided: Bool { decision != .never && decisionTime < trustTimeout }
    var isTrusted: Bool { mode == .dialogue || decision == .accept && isDecided }

    /// The settings of a client that decides whether to trust the server.
    var clientSettings: TLSClientSettings {
        var settings = Certificates.client
        // The time for the decision does not count.
        settings.handshakeTimeout = .seconds(10)
        settings.trustTimeout = .milliseconds(trustTimeout)
        if hasLateFinish { settings.maximumVersion = .tls12 }
        return settings
    }

    /// Whether both sides exchange all their bytes.
    var succeeds: Bool { !isDisturbed && isTrusted }
}

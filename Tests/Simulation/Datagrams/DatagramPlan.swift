/// What happens in a run of UDP sockets.
struct DatagramPlan {
    enum Mode: Int {
        /// Two connected sockets.
        case pair
        /// Two connected sockets that upgrade to DTLS, and a listener with its peers.
        case securePair, listener, secureListener
    }

    /// How the program of a peer uses its socket.
    enum Style: Int { case tasks, inlineDelegate, delegateQueue }

    enum Filter: Int { case none, inline, queue }

    let mode: Mode
    /// Those of the peers of a pair.
    let styles: [Style]
    let filters: [Filter]
    /// The numbers of messages before the upgrade.
    let earlyCounts: [Int]
    /// Whether a delegate upgrades in a callback.
    let upgradesInCallback: Bool
    /// Whether the kernel can split a message into datagrams.
    let splitsMessages: Bool
    /// The numbers of messages of each side, or the number of requests of each client.
    let counts: [Int]
    let clientCount: Int
    /// Whether the peers of a socket are connected, or the datagrams have addresses.
    let isConnected: Bool
    /// Datagrams are truncated to this size.
    let maximumSize: Int
    let isDisturbed: Bool
    /// When the disturbance happens, in steps of the schedule.
    let disturbanceStep: Int
    let disturbedSide: Int
    /// Milliseconds.
    let closeTimeout: Int
    let link: Network.Link
    let faults: Kernel.Faults

    init(_ choices: Choices) {
        func pick(_ count: Int) -> Int { choices.pick(count, Choices.Stream.setup) }
        let mode = Mode(rawValue: pick(4)) ?? .pair
        let isSecure = mode == .securePair || mode == .secureListener
        self.mode = mode
        counts = [0, 1].map { _ in [4, 1, 0, 12, 30][pick(5)] }
        (clientCount, isConnected, maximumSize) = (1 + pick(4), pick(2) == 0, [2_048, 100][pick(2)])
        (isDisturbed, disturbanceStep, disturbedSide) = (pick(3) == 1, pick(1_500), pick(2))
        closeTimeout = [30_000, 0, 100][pick(3)]
        link = Network.Link(latency: UInt64([0, 1, 40][pick(3)]) * 1_000_000)
        faults = Kernel.Faults(
            interrupts: [0, 8][pick(2)], refusals: [0, 8][pick(2)], shortages: [0, 8][pick(2)], lateEvents: [0, 4][pick(2)],
            losses: [0, 8, 3][pick(3)], doubles: [0, 6][pick(2)], segments: 4, replays: [0, 4][pick(2)],
            forgeries: isSecure ? [0, 4][pick(2)] : 0)
        styles = [0, 1].map { _ in [.tasks, .inlineDelegate, .tasks, .delegateQueue][pick(4)] }
        filters = [0, 1].map { _ in [.none, .queue, .none, .inline][pick(4)] }
        earlyCounts = [0, 1].map { _ in isSecure ? [0, 6, 2][pick(3)] : 0 }
        (upgradesInCallback, splitsMessages) = (pick(2) == 0, pick(2) == 1)
    }

    var isSecure: Bool { mode == .securePair || mode == .secureListener }
    var hasListener: Bool { mode == .listener || mode == .secureListener }
    /// Whether a datagram that is sent arrives.
    var isReliable: Bool { faults.losses == 0 }
}

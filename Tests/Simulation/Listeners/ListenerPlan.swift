/// What happens in a run of a listener and its clients, apart from the schedule and the faults of the kernel.
struct ListenerPlan {
    enum Shutdown: Int {
        /// After the last client has finished. Then the clients that behave must succeed.
        case afterClients
        case close, beginClosing, cancel
    }

    struct Client {
        enum Behavior: Int {
            /// Sends a request and receives the reply.
            case request
            /// Sends nothing for a while, and closes.
            case silent
            /// Resets the connection after a part of the request.
            case reset
            /// Closes after a part of the request.
            case close
        }

        let behavior: Behavior
        /// Whether the client uses the library.
        let usesLibrary: Bool
        /// The last byte of its address.
        let source: Int
        /// Nanoseconds.
        let delay: UInt64
        let count: Int
        /// Milliseconds.
        let connectTimeout: Int
        /// Whether the client tries several addresses.
        let races: Bool
    }

    let isSequence: Bool
    /// Whether the listener has a delegate, and whether that delegate has a queue.
    let hasDelegate: Bool
    let hasQueue: Bool
    let hasTLS: Bool
    let maximumConnections: Int
    let maximumPerSource: Int?
    let clients: [Client]
    let shutdown: Shutdown
    /// When the shutdown starts, in steps of the schedule.
    let shutdownStep: Int
    /// If not `nil`, an early shutdown starts when this number of connections have been accepted.
    let shutdownCount: Int?
    /// Milliseconds.
    let closeTimeout: Int
    let link: Network.Link
    let faults: Kernel.Faults

    init(_ choices: Choices) {
        func pick(_ count: Int) -> Int { choices.pick(count, Choices.Stream.setup) }
        (isSequence, hasTLS) = (pick(3) == 1, pick(4) == 1)
        let (total, perSource) = ([10_000, 1, 2, 4][pick(4)], [nil, 1, 2, 10_000][pick(4)])
        let usesLibrary = hasTLS
        clients = (0..<1 + pick(8)).map { _ in
            let behavior = Client.Behavior(rawValue: max(0, pick(6) - 2)) ?? .request
            return Client(
                behavior: behavior, usesLibrary: pick(2) == 0 || usesLibrary && behavior == .request, source: 1 + pick(3),
                delay: UInt64([0, 1, 100, 1_500][pick(4)]) * 1_000_000, count: [10, 1, 100, 3_000][pick(4)],
                connectTimeout: [30_000, 0, 5, 400][pick(4)], races: pick(4) == 1)
        }
        shutdown = pick(2) == 0 ? .afterClients : Shutdown(rawValue: pick(4)) ?? .close
        shutdownCount = pick(2) == 0 ? 1 + pick(clients.count) : nil
        (shutdownStep, closeTimeout) = (pick(hasTLS ? 4_000 : 1_500), [30_000, 0, 10, 300][pick(4)])
        link = Network.Link(
            sendCapacity: [65_536, 300][pick(2)], receiveCapacity: [65_536, 300][pick(2)],
            latency: UInt64([0, 1, 40][pick(3)]) * 1_000_000)
        faults = Kernel.Faults(
            interrupts: [0, 8][pick(2)], refusals: [0, 8][pick(2)], shortages: [0, 24][pick(2)], shortCounts: [0, 4][pick(2)],
            lateEvents: [0, 4][pick(2)], accepts: [0, 2, 5][pick(3)], sockets: [0, 4][pick(2)], connects: [0, 4][pick(2)],
            handshakes: [0, 4][pick(2)])
        (hasDelegate, hasQueue) = (pick(4) == 1, pick(2) == 0)
        // A listener with a delegate has no limits.
        (maximumConnections, maximumPerSource) = hasDelegate ? (10_000, nil) : (total, perSource)
    }

    /// How many connections of a source are served at the same time.
    var sourceLimit: Int { maximumPerSource ?? maximumConnections - maximumConnections / 5 }

    var isEarly: Bool { shutdown != .afterClients }
}

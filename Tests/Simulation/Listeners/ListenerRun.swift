internal import AsyncSockets
internal import CSimulation
internal import SocketCore

/// A run of one listener and its clients.
final class ListenerRun: Run, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    static let port: UInt16 = 7_000

    let plan: ListenerPlan
    private var server: (any Server)?
    private var clients: [any ClientSide] = []
    /// The connections that the kernel has passed to the listener.
    private(set) var accepted: [StreamEnd] = []
    /// How many of them had a source that was at its limit.
    private(set) var crowdedCount = 0

    required init(_ choices: Choices, _ trace: Trace) {
        // The scheduler makes the first choices.
        let scheduler = Scheduler(choices, trace)
        plan = ListenerPlan(choices)
        super.init(scheduler, plan.faults)
    }

    override func run() -> Violation? {
        trace.note("\(plan)")
        kernel.change { $0.link = plan.link }
        kernel.onAccept = { [unowned self] end in noteAccepted(end) }
        // The listening socket is opened before shortages begin.
        kernel.hasNoFaults = true
        server = kernel.serving { plan.hasDelegate ? DelegateServer(self) as any Server : ServerSide(self) }
        kernel.hasNoFaults = false
        clients = plan.clients.enumerated().map { number, client -> any ClientSide in
            if client.usesLibrary { LibraryClient(number, self) } else { RawClient(number, self) }
        }
        startThreads()
        scheduler.settle()
        // The run may have had too few steps for the shutdown.
        isQuiet = true
        scheduler.settle()
        checkEnd()
        kernel.serving { server?.abandon() }
        scheduler.settle()
        for client in clients { if let complaint = client.complaintAtEnd() { scheduler.fail(complaint) } }
        if kernel.socketCount > 0 { scheduler.fail("\(kernel.socketCount) sockets are still open") }
        kernel.onAccept = { _ in }
        return end()
    }

    func pattern(of client: Int) -> Pattern { Pattern(choices.seed &* 64 &+ UInt64(client), count: plan.clients[client].count) }

    var clientsHaveFinished: Bool { clients.allSatisfy(\.hasFinished) }

    private func startThreads() {
        scheduler.start("server") { [self] in server?.run() }
        for client in clients { scheduler.start(client.name) { client.run() } }
        startLibrary()
        scheduler.start("shutdown") { [self] in shutDown() }
    }

    private func shutDown() {
        CSim_set_simulated(false)
        scheduler.wait { [self] in isQuiet || isTimeToShutDown }
        CSim_set_simulated(true)
        server?.shutDown()
    }

    private var isTimeToShutDown: Bool {
        if !plan.isEarly { return clientsHaveFinished }
        return plan.shutdownCount.map { accepted.count >= $0 } ?? (scheduler.steps >= plan.shutdownStep)
    }

    /// A client's timeout has expired before it had a connection.
    func noteTimeout() { server?.timeoutCount += 1 }

    private func noteAccepted(_ end: StreamEnd) {
        let earlier = accepted.count { !$0.isClosed && $0.remotePlace.address == end.remotePlace.address }
        if earlier >= plan.sourceLimit { crowdedCount += 1 }
        accepted.append(end)
        let open = accepted.count { !$0.isClosed }
        if open > plan.maximumConnections { scheduler.fail("\(open) connections are open, not \(plan.maximumConnections)") }
    }

    // MARK: - The end

    private func checkEnd() {
        guard let server else { return }
        if let complaint = server.complaintAtEnd(acceptedCount: accepted.count) { scheduler.fail(complaint) }
        if !kernel.network.listeners.isEmpty { scheduler.fail("the listening socket is still open") }
        guard !plan.isEarly else { return }
        let failed = clients.count { $0.hasFailed }
        let excuses = kernel.network.counts.injected + server.refusalCount + server.timeoutCount
        if failed > excuses {
            scheduler.fail("\(failed) clients fail, but there were \(excuses) refusals, faults and timeouts")
        }
    }
}

/// The listener and its program.
protocol Server: AnyObject, Sendable {
    /// How many connections the limits have refused.
    var refusalCount: Int { get }
    /// How many clients had a timeout that was too short.
    var timeoutCount: Int { get set }
    func run()
    func shutDown()
    func complaintAtEnd(acceptedCount: Int) -> String?
    func abandon()
}

/// A client of the listener.
protocol ClientSide: AnyObject, Sendable {
    var name: String { get }
    var hasFinished: Bool { get }
    /// Whether the client did not get the reply to its request.
    var hasFailed: Bool { get }
    func run()
    func complaintAtEnd() -> String?
}

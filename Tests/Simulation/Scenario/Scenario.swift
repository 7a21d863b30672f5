internal import AsyncSockets
internal import CSimulation
internal import SocketCore
internal import SocketTestSupport

/// What happens in a run of two connected sockets, apart from the schedule and the faults of the kernel.
struct Plan {
    enum Upgrade: Int { case none, immediate, afterPlaintext }

    /// What makes the connection end early.
    enum Disturbance: Int {
        case none, reset, disconnect, disconnectWithReset, disconnectAfterWriting, halfClose, release
    }

    /// The bytes that each side sends between two upgrades.
    struct Phase {
        let counts: [Int]
    }

    let upgrade: Upgrade
    let disturbance: Disturbance
    /// When the disturbance happens, in steps of the schedule.
    let disturbanceStep: Int
    let disturbedSide: Int
    let phases: [Phase]
    /// How the program of a side uses its socket.
    enum Style: Int { case inlineDelegate, tasks, delegateQueue, socketQueue }

    let styles: [Style]
    /// Whether a third task relays between two connections.
    let hasRelay: Bool
    let link: Network.Link
    let faults: Kernel.Faults

    init(_ choices: Choices) {
        func pick(_ count: Int) -> Int { choices.pick(count, Choices.Stream.setup) }
        upgrade = [.none, .immediate, .afterPlaintext, .afterPlaintext][pick(4)]
        disturbance = pick(2) == 0 ? .none : Disturbance(rawValue: pick(9)) ?? .reset
        (disturbanceStep, disturbedSide) = (pick(upgrade == .none ? 600 : 2_000), pick(2))
        styles = [0, 1].map { _ in [.inlineDelegate, .tasks, .tasks, .delegateQueue, .socketQueue][pick(5)] }
        hasRelay = pick(5) == 1
        let isSlow = pick(3) == 1
        link = Network.Link(
            sendCapacity: [65_536, 4_096, 300, isSlow ? 4_096 : 17][pick(4)],
            receiveCapacity: [65_536, 4_096, 300, isSlow ? 4_096 : 1][pick(4)],
            latency: isSlow ? 1_000_000 * UInt64(1 + pick(40)) : 0)
        // A run with many tiny segments takes long.
        let isTiny = min(link.sendCapacity, link.receiveCapacity) < 300
        let sizes = isTiny ? [40, 0, 5, 200, 400, 600] : [40, 0, 5, 400, 3_000, 20_000]
        func counts() -> [Int] { [0, 1].map { _ in sizes[pick(6)] } }
        phases =
            switch upgrade {
            case .none: [Phase(counts: counts())]
            case .immediate: [Phase(counts: [0, 0]), Phase(counts: counts())]
            case .afterPlaintext: [Phase(counts: counts()), Phase(counts: counts())]
            }
        faults = Kernel.Faults(
            interrupts: [0, 16][pick(2)], refusals: [0, 12][pick(2)], shortages: [0, 24][pick(2)],
            shortCounts: [0, 4][pick(2)], lateEvents: [0, 4][pick(2)])
    }

    /// Whether operations may fail.
    var mayFail: Bool { disturbance != .none }

    func pattern(of side: Int, _ seed: UInt64) -> Pattern {
        Pattern(seed &* 2 &+ UInt64(side), count: phases.reduce(0) { $0 + $1.counts[side] })
    }
}

/// A run of two connected sockets.
final class Scenario: Run, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let plan: Plan
    private var sides: [any Side] = []
    private var inspectors: [WireInspector] = []
    private var outerEnds: [StreamEnd] = []

    required init(_ choices: Choices, _ trace: Trace) {
        // The scheduler makes the first choices.
        let scheduler = Scheduler(choices, trace)
        plan = Plan(choices)
        super.init(scheduler, plan.faults)
    }

    override func run() -> Violation? {
        trace.note("\(plan)")
        var ends = [kernel.connect(plan.link)]
        if plan.hasRelay { ends.append(kernel.connect(plan.link)) }
        outerEnds = [ends[0].0, ends[ends.count - 1].1]
        watchWire()
        sides = [makeSide(0, outerEnds[0]), makeSide(1, outerEnds[1])]
        if plan.hasRelay { sides.append(kernel.serving { RelaySide([ends[0].1.descriptor, ends[1].0.descriptor], self) }) }
        startThreads()
        scheduler.settle()
        for side in sides { if let complaint = side.complaintAtEnd() { scheduler.fail("\(side.name): \(complaint)") } }
        let loops = sides.compactMap(\.loop)
        for side in sides { side.abandon() }
        scheduler.settle()
        for side in sides where !side.isReleased { scheduler.fail("\(side.name): the socket is not released") }
        for end in kernel.openStreams { scheduler.fail("the descriptor of side \(end.number) is not closed") }
        return end(loops)
    }

    private func makeSide(_ index: Int, _ end: StreamEnd) -> any Side {
        kernel.serving { () -> any Side in
            switch plan.styles[index] {
            case .tasks: TaskSide(index, end.descriptor, self)
            case .inlineDelegate, .delegateQueue, .socketQueue: DelegateSide(index, end.descriptor, self)
            }
        }
    }

    private func watchWire() {
        for (side, end) in outerEnds.enumerated() {
            inspectors.append(
                WireInspector(
                    plan.pattern(of: side, choices.seed), plaintextCount: plan.phases[0].counts[side],
                    isUpgraded: plan.upgrade != .none))
            end.outgoing.inspect = { [unowned self] bytes in
                if let complaint = inspectors[side].add(bytes) { scheduler.fail("side \(side): \(complaint)") }
            }
        }
    }

    private func startThreads() {
        for side in sides { scheduler.start(side.name) { side.run() } }
        startLibrary()
        if plan.mayFail { scheduler.start("disturber") { [self] in disturb() } }
    }

    /// The number of bytes that the kernel has received for a side.
    func arrivedCount(_ side: Int) -> Int { outerEnds[side].incoming.arrivedCount }

    /// Whether a side loses the connection although it did nothing to end it, so that it should get each byte
    /// that has arrived. Bytes of TLS are not counted.
    func isVictim(_ side: Int) -> Bool {
        plan.upgrade == .none && (plan.disturbance == .reset || plan.disturbance != .none && plan.disturbedSide != side)
    }

    private func disturb() {
        CSim_set_simulated(false)
        scheduler.wait { [self] in scheduler.steps >= plan.disturbanceStep || isOver }
        if isOver { return }
        trace.note("\(plan.disturbance)")
        if plan.disturbance == .reset { return kernel.network.ends.forEach { $0.fail(104, kernel) } }
        let side = sides.indices.contains(plan.disturbedSide) ? sides[plan.disturbedSide] : nil
        kernel.serving { side?.disturb(plan.disturbance) }
    }
}

/// One of the two sockets of a run, and the code that uses it.
protocol Side: AnyObject, Sendable {
    var name: String { get }
    var loop: SocketEventLoop? { get }
    /// Whether the socket has been released.
    var isReleased: Bool { get }
    /// What the program's own thread does.
    func run()
    func disturb(_ disturbance: Plan.Disturbance)
    /// Checks the end of a run, and returns a description of an error.
    func complaintAtEnd() -> String?
    /// Releases the socket.
    func abandon()
}

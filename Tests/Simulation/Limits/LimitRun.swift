internal import AsyncSockets
internal import CSimulation
internal import Glibc

/// A run about time limits, trust decisions or dialogues.
final class LimitRun: Run, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let plan: LimitPlan
    private var sides: [any LimitSide] = []
    private var ends: [StreamEnd] = []
    private var isQuiet = false
    /// The decision of the client, once it is made.
    var hasDecided = false

    required init(_ choices: Choices, _ trace: Trace) {
        // The scheduler makes the first choices.
        let scheduler = Scheduler(choices, trace)
        plan = LimitPlan(choices)
        super.init(scheduler, plan.faults)
    }

    override func run() -> Violation? {
        trace.note("\(plan)")
        let (first, second) = kernel.connect(plan.link)
        ends = [first, second]
        sides = kernel.serving { makeSides(first, second) }
        for side in sides { scheduler.start(side.name) { side.run() } }
        startLibrary()
        if plan.isDisturbed { scheduler.start("disturber") { [self] in disturb() } }
        scheduler.settle()
        isQuiet = true
        scheduler.settle()
        for side in sides { if let complaint = side.complaintAtEnd() { scheduler.fail("\(side.name): \(complaint)") } }
        kernel.serving { for side in sides { side.abandon() } }
        scheduler.settle()
        for side in sides where !side.isReleased { scheduler.fail("\(side.name): the socket is not released") }
        if kernel.socketCount > 0 { scheduler.fail("\(kernel.socketCount) sockets are still open") }
        return end()
    }

    private func makeSides(_ first: StreamEnd, _ second: StreamEnd) -> [any LimitSide] {
        switch plan.mode {
        case .taskWrites: [TaskWriter(first.descriptor, self), SlowReader(second, self)]
        case .delegateWrites: [DelegateWriter(first.descriptor, self), SlowReader(second, self)]
        case .taskTrust, .dialogue: [SecureSide(0, first.descriptor, self), SecureSide(1, second.descriptor, self)]
        case .delegateTrust: [DecidingDelegate(first.descriptor, self), SecureSide(1, second.descriptor, self)]
        }
    }

    private func disturb() {
        CSim_set_simulated(false)
        scheduler.wait { [self] in scheduler.steps >= plan.disturbanceStep || isQuiet }
        trace.note("disturbance \(plan.disturbance)")
        switch plan.disturbance {
        case 0: for end in ends { end.fail(ECONNRESET, kernel) }
        case let number: kernel.serving { sides[number - 1].disconnect() }
        }
    }

    func pattern(of side: Int) -> Pattern { Pattern(choices.seed &* 2 &+ UInt64(side), count: plan.counts[side]) }

    func pick(_ count: Int, _ side: Int) -> Int { choices.pick(count, Choices.Stream.sides + UInt16(side)) }
}

/// One side of a connection.
protocol LimitSide: AnyObject, Sendable {
    var name: String { get }
    var isReleased: Bool { get }
    func run()
    func disconnect()
    func complaintAtEnd() -> String?
    func abandon()
}

extension LimitSide {
    var isReleased: Bool { true }
    func abandon() {}
}

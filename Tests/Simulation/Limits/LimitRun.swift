internal import AsyncSockets
internal import CSimulation
internal import Glibc

/// A run about time limits, trust decisions, dialogues or connection attempts.
final class LimitRun: Run, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let plan: LimitPlan
    private var sides: [any RunSide] = []
    private var ends: [StreamEnd] = []
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
        if plan.mode == .race {
            kernel.change { network in
                for (place, route) in plan.race.routes { network.routes[place] = route }
            }
            sides = kernel.serving { [RaceClient(self)] }
        } else {
            let (first, second) = kernel.connect(plan.link)
            ends = [first, second]
            sides = kernel.serving { makeSides(first, second) }
        }
        return play(sides, disturbance: plan.isDisturbed ? { [self] in disturb() } : nil)
    }

    private func makeSides(_ first: StreamEnd, _ second: StreamEnd) -> [any RunSide] {
        switch plan.mode {
        case .race: []
        case .taskWrites: [TaskWriter("writer", adopting: first.descriptor, self), SlowReader(second, self)]
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
        case let number: kernel.serving { sides[(number - 1) % sides.count].disconnect() }
        }
    }

    func pattern(of side: Int) -> Pattern { Pattern(choices.seed &* 2 &+ UInt64(side), count: plan.counts[side]) }

    func pick(_ count: Int, _ side: Int) -> Int { choices.pick(count, Choices.Stream.sides + UInt16(side)) }
}

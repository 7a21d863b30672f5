internal import CSimulation
internal import SocketCore

/// A run of one seed. Each kind of run is a subclass.
class Run: @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let choices: Choices
    let trace: Trace
    let scheduler: Scheduler
    let kernel = Kernel.shared
    private(set) var isOver = false
    /// Whether nothing more happens unless the run causes it.
    var isQuiet = false

    private static let workerCount = 2

    /// The kinds of runs, by their names on the command line.
    static let kinds: [String: Run.Type] = [
        "streams": Scenario.self, "listeners": ListenerRun.self, "limits": LimitRun.self, "datagrams": DatagramRun.self,
    ]

    required init(_ choices: Choices, _ trace: Trace) { preconditionFailure("Run is abstract") }

    init(_ scheduler: Scheduler, _ faults: Kernel.Faults) {
        (self.scheduler, choices, trace) = (scheduler, scheduler.choices, scheduler.trace)
        trace.describe = { [unowned scheduler] in "\(scheduler.steps) \(scheduler.current.name):" }
        kernel.begin(scheduler, faults)
        CSim_seed_random(choices.seed)
    }

    /// Returns the first violation.
    func run() -> Violation? { nil }

    /// Starts the threads of the event loops and of libdispatch.
    func startLibrary() {
        for index in 0..<kernel.dispatch.sourceCount {
            scheduler.start("loop \(index)") { [self] in kernel.dispatch.serve(index, scheduler, kernel) { self.isOver } }
        }
        for number in 0..<Self.workerCount {
            scheduler.start("worker \(number)") { [self] in kernel.dispatch.work(scheduler) { self.isOver } }
        }
    }

    /// Runs the sides until nothing more happens, and checks what they release.
    func play(_ sides: [any RunSide], disturbance: (() -> Void)?) -> Violation? {
        for side in sides { scheduler.start(side.name) { side.run() } }
        startLibrary()
        if let disturbance { scheduler.start("disturber", disturbance) }
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

    /// Checks the resources of the loops, and joins all threads.
    func end(_ loops: [SocketEventLoop]? = nil) -> Violation? {
        // Two calls return both loops.
        let all = loops ?? kernel.serving { [0, 1].compactMap { _ in try? SocketEventLoop.next() } }
        for loop in all where loop.registrationCount > 0 {
            scheduler.fail("\(loop.registrationCount) handlers are still registered")
        }
        isOver = true
        scheduler.finish()
        return scheduler.violation
    }

    /// Blocks the calling thread of the program.
    func pause(_ nanoseconds: UInt64) {
        var isOver = false
        kernel.after(nanoseconds) { isOver = true }
        scheduler.wait { isOver }
    }

    /// Suspends a task, possibly for no time. A worker resumes it.
    func suspend(_ nanoseconds: UInt64) async {
        await withUnsafeContinuation { continuation in
            kernel.after(nanoseconds) { continuation.resume() }
        }
    }

    /// Suspends a task until a worker resumes it. Outside an event loop, `Task.yield()` would use another
    /// thread, which is not simulated.
    func yield() async {
        await withUnsafeContinuation { continuation in
            kernel.dispatch.add(.closure { continuation.resume() }, to: nil, at: 0)
        }
    }

    /// Checks that `limit` nanoseconds have elapsed since `start` and, in any case, no more than that.
    func checkTime(since start: UInt64, _ limit: UInt64, isExact: Bool = true, _ what: String) {
        let elapsed = kernel.now - start
        if isExact, elapsed < limit { scheduler.fail("\(what) of \(limit) ns expires after \(elapsed) ns") }
        if elapsed > limit + 2_000_000 { scheduler.fail("\(what) of \(limit) ns takes \(elapsed) ns") }
    }
}

/// One end of a connection or of an association, which is a thread, a task or a delegate.
protocol RunSide: AnyObject, Sendable {
    var name: String { get }
    var isReleased: Bool { get }
    func run()
    func disconnect()
    func complaintAtEnd() -> String?
    func abandon()
}

extension RunSide {
    var isReleased: Bool { true }
    func abandon() {}
}

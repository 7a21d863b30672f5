internal import CSimulation
internal import Glibc

/// A violation of an invariant.
struct Violation: Error, CustomStringConvertible {
    let description: String
}

/// A thread of the run.
final class SimulatedThread: @unchecked Sendable {
    // Unchecked: only the thread that is running uses the state of a run.
    let number: Int
    let name: String
    fileprivate let semaphore = CSim_make_semaphore()
    fileprivate let body: () -> Void
    /// Returns whether a blocked thread can continue. `nil` if it is not blocked.
    fileprivate var isReady: (() -> Bool)?
    fileprivate var hasEnded = false
    fileprivate var handle = pthread_t()

    fileprivate init(_ number: Int, _ name: String, _ body: @escaping () -> Void) {
        (self.number, self.name, self.body) = (number, name, body)
    }

    fileprivate var canRun: Bool { !hasEnded && (isReady?() ?? true) }
}

/// Runs the threads of a run alternately. A thread passes control to another thread where it calls the
/// kernel. `choices` decides when, and to which thread.
final class Scheduler: @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let choices: Choices
    let trace: Trace
    private var threads: [SimulatedThread] = []
    private(set) var current: SimulatedThread
    /// The number of points at which the schedule could change.
    private(set) var steps = 0
    /// A switch is considered once in this number of points.
    private let rate: Int
    /// The number of actions outside the threads that can happen now: deliveries of the network.
    var actionCount: () -> Int = { 0 }
    var act: (Int) -> Void = { _ in }
    /// Advances the clock to the next event. Returns `false` without one.
    var advance: () -> Bool = { false }
    /// Whether nothing can happen any more, until the first thread continues.
    private(set) var isQuiet = false
    private(set) var violation: Violation?

    private static let stepLimit = 150_000

    /// The calling thread becomes the first thread.
    init(_ choices: Choices, _ trace: Trace) {
        (self.choices, self.trace) = (choices, trace)
        current = SimulatedThread(0, "main") {}
        threads = [current]
        rate = [4, 2, 8, 32, 200][choices.pick(5, Choices.Stream.setup)]
    }

    // MARK: - Threads

    func start(_ name: String, _ body: @escaping () -> Void) {
        let thread = SimulatedThread(threads.count, name, body)
        threads.append(thread)
        let start = Start(self, thread)
        let status = pthread_create(
            &thread.handle, nil,
            { argument in
                guard let argument else { return nil }
                let start = Unmanaged<Start>.fromOpaque(argument).takeRetainedValue()
                start.scheduler.run(start.thread)
                return nil
            }, Unmanaged.passRetained(start).toOpaque())
        precondition(status == 0, "pthread_create has failed: \(status)")
    }

    private final class Start {
        let (scheduler, thread): (Scheduler, SimulatedThread)
        init(_ scheduler: Scheduler, _ thread: SimulatedThread) { (self.scheduler, self.thread) = (scheduler, thread) }
    }

    private func run(_ thread: SimulatedThread) {
        CSim_wait(thread.semaphore)
        CSim_set_simulated(true)
        thread.body()
        CSim_set_simulated(false)
        thread.hasEnded = true
        trace.add("ends", thread.number)
        if let next = next(except: thread) { resume(next) }
    }

    /// Waits for all threads except the first one, which calls this.
    func finish() {
        wait { [self] in threads.dropFirst().allSatisfy(\.hasEnded) }
        for thread in threads.dropFirst() { pthread_join(thread.handle, nil) }
    }

    // MARK: - Points

    /// A point at which another thread may run, or the network may act.
    func point() {
        countStep()
        guard choices.chance(rate, Choices.Stream.schedule) else { return }
        let ready = threads.filter { $0 !== current && $0.canRun }
        let actions = actionCount()
        let choice = choices.pick(1 + ready.count + actions, Choices.Stream.schedule)
        if choice == 0 { return }
        if choice <= ready.count { pass(to: ready[choice - 1]) } else { act(choice - 1 - ready.count) }
    }

    /// Runs other threads until `isReady` returns true.
    func wait(until isReady: @escaping () -> Bool) {
        let thread = current
        while !isReady() {
            thread.isReady = isReady
            if let next = next(except: thread), next !== thread { pass(to: next) }
            thread.isReady = nil
        }
    }

    /// Runs everything else until nothing can happen any more. Called by the first thread.
    func settle() {
        isQuiet = false
        wait { [self] in isQuiet }
    }

    func fail(_ text: String) {
        if violation == nil { violation = Violation(description: text) }
    }

    private func countStep() {
        steps += 1
        guard steps == Self.stepLimit else { return }
        // The threads may be in a loop, so exit immediately.
        fail("no end after \(Self.stepLimit) steps")
        Report.finish(violation, self)
    }

    /// Returns the thread that runs next if `thread` cannot: it is blocked, or has finished.
    private func next(except thread: SimulatedThread) -> SimulatedThread? {
        while true {
            countStep()
            let ready = threads.filter { $0.canRun }
            let actions = actionCount()
            if ready.isEmpty, actions == 0 {
                if !advance() { isQuiet = true }
                continue
            }
            let choice = choices.pick(ready.count + actions, Choices.Stream.schedule)
            if choice < ready.count { return ready[choice] }
            act(choice - ready.count)
        }
    }

    private func pass(to next: SimulatedThread) {
        let thread = current
        resume(next)
        CSim_wait(thread.semaphore)
    }

    private func resume(_ next: SimulatedThread) {
        trace.add("runs", next.number)
        current = next
        CSim_post(next.semaphore)
    }
}

internal import Dispatch
internal import Logging
internal import SocketBuffers
internal import Synchronization

/// Detects blocked event loops: loops that are occupied by code that blocks or computes for a long time.
///
/// While any loop has a thread, the watch checks all loops twice a second on its own queue. It logs one
/// warning each time a loop is blocked. No new connections are assigned to a blocked loop until it recovers.
final class LoopWatch: Sendable {
    static let shared = LoopWatch()

    private struct Watched {
        let runner: LoopRunner
        var round: UInt
        var since: Deadline
        var isReported = false
    }

    private struct State {
        var watched: [Watched] = []
        var timer: (any DispatchSourceTimer)?
        /// The value of `beginnings` when the timer last fired.
        var seen: UInt = 0
    }

    private let state = Locked(State())
    /// Whether the timer is running.
    private let isLooking = Atomic(false)
    /// How often a loop has started to run on a thread, across all loops.
    private let beginnings = Atomic<UInt>(0)
    private let queue = DispatchQueue(label: "AsyncSockets.LoopWatch")

    /// Nanoseconds.
    private static let period = 500_000_000
    /// Seconds.
    private static let patience = 1.0

    func add(_ runner: LoopRunner) {
        state.withLock { $0.watched.append(Watched(runner: runner, round: runner.round, since: .now)) }
    }

    func forget(_ runner: LoopRunner) {
        // The runner is released outside the lock.
        let forgotten = state.withLock { state in
            state.watched.firstIndex { $0.runner === runner }.map { state.watched.remove(at: $0) }
        }
        withExtendedLifetime(forgotten) {}
    }

    /// Called on a thread that is about to run a loop.
    func begin() {
        beginnings.wrappingAdd(1, ordering: .sequentiallyConsistent)
        if isLooking.load(ordering: .sequentiallyConsistent) { return }
        state.withLock { state in
            isLooking.store(true, ordering: .sequentiallyConsistent)
            guard state.timer == nil else { return }
            let timer = DispatchSource.makeTimerSource(queue: queue)
            let period = DispatchTimeInterval.nanoseconds(Self.period)
            timer.schedule(deadline: .now() + period, repeating: period, leeway: .milliseconds(100))
            timer.setEventHandler { [unowned self] in look() }
            timer.activate()
            state.timer = timer
        }
    }

    private func look() {
        let now = Deadline.now
        let (late, runners) = state.withLock { state in
            stopLookingIfIdle(&state)
            return (
                state.watched.indices.compactMap { Self.look(at: &state.watched[$0], now) },
                state.watched.map(\.runner)
            )
        }
        // Searches the handlers of all loops, because a task may use a connection on a different loop.
        for (runner, seconds) in late {
            let user = runner.user
            Self.report(Self.handler(at: user, on: runners), seconds)
        }
    }

    /// Returns the handler from the first runner that has it registered. Each runner is searched only once.
    /// `lazy.compactMap` would search twice, and would crash if the handler was deregistered in between.
    static func handler(at address: UInt, on runners: [LoopRunner]) -> (any EventHandler)? {
        for runner in runners {
            if let handler = runner.handler(at: address) { return handler }
        }
        return nil
    }

    /// A loop that starts running during this call either finds `isLooking` false and starts the timer, or
    /// has already incremented `beginnings`.
    private func stopLookingIfIdle(_ state: inout State) {
        isLooking.store(false, ordering: .sequentiallyConsistent)
        let beginnings = beginnings.load(ordering: .sequentiallyConsistent)
        defer { state.seen = beginnings }
        if beginnings != state.seen || state.watched.contains(where: { $0.runner.hasThread }) {
            isLooking.store(true, ordering: .sequentiallyConsistent)
        } else {
            state.timer.take()?.cancel()
        }
    }

    /// Returns the runner and for how many seconds it has been blocked, if it is blocked and has not been
    /// reported yet.
    private static func look(at watched: inout Watched, _ now: Deadline) -> (runner: LoopRunner, seconds: Double)? {
        let round = watched.runner.round
        guard round == watched.round, LoopRunner.isServing(inRound: round) else {
            if watched.isReported { watched.runner.isHeldUp.store(false, ordering: .relaxed) }
            watched = Watched(runner: watched.runner, round: round, since: now)
            return nil
        }
        let seconds = now.seconds(since: watched.since)
        guard seconds >= patience, !watched.isReported else { return nil }
        watched.isReported = true
        watched.runner.isHeldUp.store(true, ordering: .relaxed)
        return (watched.runner, seconds)
    }

    private static func report(_ user: (any EventHandler)?, _ seconds: Double) {
        var metadata: Logger.Metadata = ["seconds": "\(Int(seconds))"]
        metadata.merge(user?.logMetadata ?? ["task": "no connection"]) { first, _ in first }
        socketLog.withLock { $0 }.warning(
            "an event loop is blocked: move blocking or long-running code off the event loop", metadata: metadata)
    }
}

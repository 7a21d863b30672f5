// Rules of the workers:
//  1. Steps are queued by key. The steps of one key run in the order in which they were submitted, and the
//     keys take turns.
//  2. A slow private key may occupy all workers except one. A slow hardware token therefore never blocks the
//     other keys, however many handshakes use it. Two slow keys can occupy all workers. Verification uses
//     only the CPU and may occupy every worker.
//  3. A step that would be queued too long because its key is slow is rejected together with its handshake.
//     Otherwise clients without credentials could build up a queue of several minutes. The expected duration
//     of a step is the average of the key's recent steps, or the elapsed time of the running step if that is
//     longer.
//  4. Steps of closed handshakes are neither counted nor run.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The threads that run slow handshake steps, so that the event loops stay free for other connections.
///
/// The number of workers is the number of processors, but at least two. No threads are kept while there is
/// no work.
final class HandshakeWorkers: Sendable {
    private struct Step: Sendable {
        let run: @Sendable () -> Void
        let isCancelled: @Sendable () -> Bool
    }

    private struct Lane {
        private var steps: [Step] = []
        /// How many of `steps` have been taken from the queue.
        private var begun = 0
        /// When this many steps are queued, the steps of closed handshakes are removed.
        private var tidyCount = 64
        /// The start times of the running steps.
        private var beginnings: [Deadline] = []
        /// The moving average of a step's duration.
        private var seconds = 0.0

        var waitingCount: Int { steps.count - begun }
        var runningCount: Int { beginnings.count }
        var isIdle: Bool { waitingCount == 0 && runningCount == 0 }

        /// How long the queued steps would occupy one worker.
        func secondsOfWork(at now: Deadline) -> Double {
            Double(waitingCount) * max(seconds, beginnings.first.map { now.seconds(since: $0) } ?? 0)
        }

        mutating func append(_ step: Step) {
            if waitingCount >= tidyCount {
                tidy()
                tidyCount = max(64, 2 * waitingCount)
            }
            steps.append(step)
        }

        /// Removes the steps of closed handshakes (rule 4).
        mutating func tidy() {
            steps = steps[begun...].filter { !$0.isCancelled() }
            begun = 0
        }

        mutating func begin(at now: Deadline) -> Step? {
            while begun < steps.count {
                let step = steps[begun]
                begun += 1
                if begun == steps.count { (steps, begun) = ([], 0) }
                guard !step.isCancelled() else { continue }
                beginnings.append(now)
                return step
            }
            return nil
        }

        mutating func finish(_ beginning: Deadline, at now: Deadline) {
            if let index = beginnings.firstIndex(of: beginning) { beginnings.remove(at: index) }
            seconds += (now.seconds(since: beginning) - seconds) / (seconds == 0 ? 1 : 4)
        }
    }

    private struct State {
        var lanes: [WorkKey: Lane] = [:]
        /// The keys with queued steps, in the order of their turns.
        var turns: [WorkKey] = []
        var idle: [DispatchQueue]
    }

    static let shared = HandshakeWorkers(count: max(2, SocketEventLoop.usableProcessors))
    /// How long clients usually allow for a handshake, in seconds.
    static let usualLimit = 30.0

    /// Idle keys are forgotten while more keys than this are known.
    private static let keptLanes = 64

    private let state: Locked<State>
    private let count: Int
    private let limit: Double

    /// - Parameter limit: The longest acceptable delay of a step, in seconds.
    init(count: Int, limit: Double = usualLimit) {
        (self.count, self.limit) = (count, limit)
        let queues = (0..<count).map { DispatchQueue(label: "AsyncSockets.handshakes.\($0)") }
        state = Locked(State(idle: queues))
    }

    private func share(of key: WorkKey) -> Int {
        switch key {
        case .signing: max(1, count - 1)
        case .verifying: count
        }
    }

    /// Runs a handshake step on another thread when its key's turn is reached, unless the handshake has
    /// closed by then. Returns `false` if the delay would be too long and the step is rejected.
    func perform(
        _ key: WorkKey, isCancelled: @escaping @Sendable () -> Bool = { false }, _ step: @escaping @Sendable () -> Void
    ) -> Bool {
        let isAccepted = state.withLock { state in
            guard hasTime(for: key, &state) else { return false }
            state.lanes[key, default: Lane()].append(Step(run: step, isCancelled: isCancelled))
            if !state.turns.contains(key) { state.turns.append(key) }
            return true
        }
        if isAccepted { begin() }
        return isAccepted
    }

    /// Rule 3.
    private func hasTime(for key: WorkKey, _ state: inout State) -> Bool {
        guard case .signing = key, state.lanes[key] != nil else { return true }
        let (now, most) = (Deadline.now, limit * Double(share(of: key)))
        func isTooMuch() -> Bool { state.lanes[key].map { $0.secondsOfWork(at: now) > most } ?? false }
        guard isTooMuch() else { return true }
        state.lanes[key]?.tidy()
        return !isTooMuch()
    }

    private func begin() {
        while let (queue, key, step, beginning) = state.withLock({ takeNext(&$0) }) {
            queue.async { [self] in
                step.run()
                state.withLock { finish(key, queue, beginning, &$0) }
                begin()
            }
        }
    }

    private func finish(_ key: WorkKey, _ queue: DispatchQueue, _ beginning: Deadline, _ state: inout State) {
        state.idle.append(queue)
        state.lanes[key]?.finish(beginning, at: .now)
        forgetIfIdle(key, &state)
    }

    /// Forgets an idle key if too many keys are kept. If a key is kept, its average duration is still known
    /// when it is used again.
    private func forgetIfIdle(_ key: WorkKey, _ state: inout State) {
        if state.lanes.count > Self.keptLanes, state.lanes[key]?.isIdle == true { state.lanes[key] = nil }
    }

    private func takeNext(_ state: inout State) -> (DispatchQueue, WorkKey, Step, Deadline)? {
        while let index = state.turns.firstIndex(where: { state.lanes[$0]?.runningCount ?? 0 < share(of: $0) }),
            let queue = state.idle.last
        {
            let (key, now) = (state.turns.remove(at: index), Deadline.now)
            guard let step = state.lanes[key]?.begin(at: now) else {
                forgetIfIdle(key, &state)
                continue
            }
            state.idle.removeLast()
            if state.lanes[key]?.waitingCount ?? 0 > 0 { state.turns.append(key) }
            return (queue, key, step, now)
        }
        return nil
    }
}

extension AsyncSocketError {
    static let tooManyHandshakes = AsyncSocketError(
        .tooManyHandshakes, fault: .system, operation: .startTLS,
        message: "earlier handshakes with the same private key would take more than \(Int(HandshakeWorkers.usualLimit)) seconds")
}

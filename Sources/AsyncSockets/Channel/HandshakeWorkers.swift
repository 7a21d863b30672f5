// Rules of the workers:
//  1. Steps wait by key. Steps of one key wait in the order in which they came, and the keys take turns.
//  2. A slow private key occupies at most the workers but one. So a token leaves the others a worker, however
//     many handshakes with it are asked for. Two slow keys may occupy each worker. Verifying needs the
//     processor alone, and takes any worker.
//  3. A step that would wait too long for a slow key is refused, and its handshake with it: clients without
//     credentials must not make a queue that takes minutes. A step takes as long as the last ones of its key
//     have taken, or as the one that runs has taken so far.
//  4. The steps of handshakes that have ended do not count and do not run.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The threads on which steps of handshakes run that take long: one for each processor, two at least, and
/// none while there is nothing to do. The event loops stay free for the other connections.
final class HandshakeWorkers: Sendable {
    private struct Step: Sendable {
        let run: @Sendable () -> Void
        let isCancelled: @Sendable () -> Bool
    }

    /// The steps of one key.
    private struct Lane {
        private var steps: [Step] = []
        /// How many of `steps` have begun.
        private var begun = 0
        /// The steps of ended handshakes are taken away when so many wait.
        private var tidyCount = 64
        /// When those that run began.
        private var beginnings: [Deadline] = []
        /// How long the last ones have taken on average.
        private var seconds = 0.0

        var waitingCount: Int { steps.count - begun }
        var runningCount: Int { beginnings.count }
        var isIdle: Bool { waitingCount == 0 && runningCount == 0 }

        /// How long the steps that wait would take one worker.
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

        /// Rule 4.
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
        /// The keys that have steps waiting: the next one to take its turn first.
        var turns: [WorkKey] = []
        var idle: [DispatchQueue]
    }

    static let shared = HandshakeWorkers(count: max(2, EventLoop.usableProcessors))
    /// As long as clients usually wait for a handshake.
    static let usualLimit = 30.0

    /// As many keys are remembered while they have no steps.
    private static let keptLanes = 64

    private let state: Locked<State>
    private let count: Int
    private let limit: Double

    /// - Parameter limit: The seconds for which a step may have to wait.
    init(count: Int, limit: Double = usualLimit) {
        (self.count, self.limit) = (count, limit)
        let queues = (0..<count).map { DispatchQueue(label: "AsyncSockets.handshakes.\($0)") }
        state = Locked(State(idle: queues))
    }

    /// How many steps of `key` may run at once.
    private func share(of key: WorkKey) -> Int {
        switch key {
        case .signing: max(1, count - 1)
        case .verifying: count
        }
    }

    /// Does a step of a handshake in the turn of its key, on another thread, unless the handshake has ended
    /// by then; false when it would wait for too long, and is refused.
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

    /// Has idle workers begin.
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

    /// A few keys are kept: their next burst begins with what is known of them.
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
        .tooManyHandshakes, blame: .system, operation: "startTLS",
        message: "the handshakes queued before it for the same private key take more than \(HandshakeWorkers.usualLimit) seconds")
}

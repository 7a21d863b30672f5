// Rules of the workers:
//  1. Steps wait by key: those of one key in the order in which they came, and the keys take turns.
//  2. A key occupies all workers but one. So a key that is slow, such as one in a token, leaves the others a
//     worker, however many handshakes with it are asked for.
//  3. A step that would wait too long, by the time that the steps before it have taken, is refused, and its
//     handshake with it: clients without credentials must not make a queue that takes minutes.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The threads on which steps of handshakes run that take long: one for each processor, two at least, and
/// none while there is nothing to do. The event loops stay free for the other connections.
final class HandshakeWorkers: Sendable {
    typealias Step = @Sendable () -> Void

    /// The steps of one key.
    private struct Lane {
        var waiting: [Step] = []
        /// How many of `waiting` have begun.
        var begun = 0
        var running = 0
        /// How long the last ones have taken on average.
        var seconds = 0.0

        var waitingCount: Int { waiting.count - begun }

        mutating func takeFirst() -> Step {
            defer {
                begun += 1
                running += 1
                if begun == waiting.count { (waiting, begun) = ([], 0) }
            }
            return waiting[begun]
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

    private let state: Locked<State>
    private let count: Int
    private let limit: Double

    /// - Parameter limit: The seconds for which a step may have to wait.
    init(count: Int, limit: Double = usualLimit) {
        (self.count, self.limit) = (count, limit)
        let queues = (0..<count).map { DispatchQueue(label: "AsyncSockets.handshakes.\($0)") }
        state = Locked(State(idle: queues))
    }

    /// How many steps of one key run at once.
    private var share: Int { max(1, count - 1) }

    /// Does a step of a handshake in the turn of its key, on another thread; false when it would wait for too
    /// long, and is refused.
    func perform(_ key: WorkKey, _ step: @escaping Step) -> Bool {
        let isAccepted = state.withLock { state in
            if let lane = state.lanes[key], Double(lane.waitingCount) * lane.seconds > limit * Double(share) { return false }
            state.lanes[key, default: Lane()].waiting.append(step)
            if !state.turns.contains(key) { state.turns.append(key) }
            return true
        }
        if isAccepted { begin() }
        return isAccepted
    }

    /// Has idle workers begin.
    private func begin() {
        while let (queue, key, step) = state.withLock({ takeNext(&$0) }) {
            queue.async { [self] in
                let beginning = Deadline.now
                step()
                let seconds = Deadline.now.seconds(since: beginning)
                state.withLock { finish(key, queue, seconds, &$0) }
                begin()
            }
        }
    }

    private func finish(_ key: WorkKey, _ queue: DispatchQueue, _ seconds: Double, _ state: inout State) {
        state.idle.append(queue)
        guard var lane = state.lanes[key] else { return }
        lane.running -= 1
        lane.seconds += (seconds - lane.seconds) / (lane.seconds == 0 ? 1 : 4)
        state.lanes[key] = lane.running == 0 && lane.waitingCount == 0 ? nil : lane
    }

    private func takeNext(_ state: inout State) -> (DispatchQueue, WorkKey, Step)? {
        let index = state.turns.firstIndex { state.lanes[$0]?.running ?? 0 < share }
        guard let index, let queue = state.idle.popLast() else { return nil }
        let key = state.turns.remove(at: index)
        guard let step = state.lanes[key]?.takeFirst() else { return nil }
        if state.lanes[key]?.waitingCount ?? 0 > 0 { state.turns.append(key) }
        return (queue, key, step)
    }
}

extension AsyncSocketError {
    static let tooManyHandshakes = AsyncSocketError(
        .tooManyHandshakes, blame: .system, operation: "startTLS",
        message: "the handshakes before it that need the same private key take over \(HandshakeWorkers.usualLimit) seconds")
}

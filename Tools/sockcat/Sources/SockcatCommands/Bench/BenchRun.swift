internal import AsyncSockets
internal import Synchronization

/// Repeats an operation in several workers at the same time, until a time or a number of operations is
/// reached.
struct BenchRun: Sendable {
    let workers: Int
    let duration: Duration
    /// The number of operations after which the run stops early.
    let limit: Int?

    /// A worker stops after this many failures without a success. Otherwise, a server that was stopped would
    /// cause a busy loop.
    private static let failuresInARow = 10

    /// Runs `body` in each worker repeatedly. `body` performs operations with `BenchWorker.loop(_:)`, for
    /// example on one connection.
    ///
    /// - Throws: The first failure if no operation succeeded.
    func run(_ body: @escaping @Sendable (BenchWorker) async throws -> Void) async throws -> BenchResult {
        let start = ContinuousClock.now
        let record = BenchRecord(limit: limit)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<workers {
                group.addTask { await Self.work(BenchWorker(end: start + duration, record: record), body) }
            }
        }
        var result = record.result
        result.elapsed = ContinuousClock.now - start
        if result.latencies.count == 0, let failure = record.firstFailure { throw failure }
        return result
    }

    private static func work(_ worker: BenchWorker, _ body: @Sendable (BenchWorker) async throws -> Void) async {
        var failures = 0
        while failures < failuresInARow, worker.isRunning {
            let before = worker.completed
            do {
                try await body(worker)
                failures = 0
            } catch {
                worker.record.add(Failure(error))
                failures = worker.completed > before ? 1 : failures + 1
            }
        }
    }
}

/// One worker of a run, which performs one operation after the other.
final class BenchWorker: Sendable {
    private let end: ContinuousClock.Instant
    fileprivate let record: BenchRecord
    private let operations = Atomic<Int>(0)

    fileprivate init(end: ContinuousClock.Instant, record: BenchRecord) {
        self.end = end
        self.record = record
    }

    /// The outcome of an operation.
    enum Outcome: Sendable {
        case completed(Duration)
        /// The operation was the last one on its connection, and another connection is needed.
        case completedLast(Duration)
        /// The peer closed the connection in an orderly way, without an operation to measure.
        case closed
    }

    var isRunning: Bool { ContinuousClock.now < end && !record.isComplete }

    fileprivate var completed: Int { operations.load(ordering: .relaxed) }

    /// Repeats `operation` until the run stops or the connection closes. The operation adds its counts to its
    /// argument.
    nonisolated(nonsending) func loop(
        _ operation: nonisolated(nonsending) (inout BenchResult) async throws -> Outcome
    ) async throws {
        var own = BenchResult()
        defer { record.add(own) }
        while ContinuousClock.now < end, record.take() {
            switch try await operation(&own) {
            case .completed(let duration): note(duration, &own)
            case .completedLast(let duration): return note(duration, &own)
            case .closed: return
            }
        }
    }

    /// Counts bytes that arrived outside of operations.
    func addReceived(_ count: Int) { record.add(BenchResult(bytesReceived: count)) }

    private func note(_ duration: Duration, _ result: inout BenchResult) {
        result.latencies.record(duration)
        operations.add(1, ordering: .relaxed)
    }
}

/// The results of all workers.
private final class BenchRecord: Sendable {
    private struct State {
        var result = BenchResult()
        var firstFailure: Failure?
        var remaining: Int?
    }

    private let state: Mutex<State>

    init(limit: Int?) { state = Mutex(State(remaining: limit)) }

    var result: BenchResult { state.withLock { $0.result } }
    var firstFailure: Failure? { state.withLock { $0.firstFailure } }
    var isComplete: Bool { state.withLock { $0.remaining == 0 } }

    /// Returns whether another operation may start.
    func take() -> Bool {
        state.withLock { state in
            guard let remaining = state.remaining else { return true }
            if remaining > 0 { state.remaining = remaining - 1 }
            return remaining > 0
        }
    }

    func add(_ result: BenchResult) { state.withLock { $0.result.merge(result) } }

    func add(_ failure: Failure) {
        state.withLock { state in
            state.firstFailure = state.firstFailure ?? failure
            state.result.failures[failure.message, default: 0] += 1
        }
    }
}

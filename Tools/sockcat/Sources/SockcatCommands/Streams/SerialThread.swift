internal import Dispatch
internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// A thread for calls that block, one after another.
///
/// A dispatch queue would not do: while its threads are blocked, Dispatch adds only about one thread per
/// second, so a server with many commands would hardly make progress.
final class SerialThread: Sendable {
    private let jobs = JobQueue()

    /// - Throws: A failure if the process may not have more threads.
    init() throws {
        try DetachedThread.start { [jobs] in
            while let job = jobs.next() { job() }
        }
    }

    deinit { jobs.add(nil) }

    /// Runs a closure after all closures that were passed before.
    func run(_ body: @escaping @Sendable () -> Void) { jobs.add(body) }

    /// Runs a closure and returns its result.
    func result<Value: Sendable>(of body: @escaping @Sendable () throws -> Value) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            run { continuation.resume(with: Result { try body() }) }
        }
    }
}

private final class JobQueue: Sendable {
    typealias Job = @Sendable () -> Void

    private let jobs = Mutex<[Job?]>([])
    private let count = DispatchSemaphore(value: 0)

    /// Adds a job, or `nil` for the end.
    func add(_ job: Job?) {
        jobs.withLock { $0.append(job) }
        count.signal()
    }

    /// Waits for the next job. Returns `nil` at the end.
    func next() -> Job? {
        count.wait()
        return jobs.withLock { $0.removeFirst() }
    }
}

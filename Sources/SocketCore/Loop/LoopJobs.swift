internal import SocketBuffers

/// The jobs of tasks that wait for a loop, the oldest first. They are confined to the loop's thread.
///
/// With the first job they keep the executor alive, which is the loop, until `dropExecutor()`: a job has no
/// reference to its executor, and the loop must not end while a job waits.
struct LoopJobs: ~Copyable {
    private var waiting = Ring<UnownedJob>()
    private var executor: (any TaskExecutor)?

    /// An emptied list keeps room for this many.
    fileprivate static let keptCapacity = 256

    var isEmpty: Bool { waiting.isEmpty }

    /// The executor of the jobs. Nil when there are none, or may be.
    var unownedExecutor: UnownedTaskExecutor? { executor?.asUnownedTaskExecutor() }

    mutating func append(_ job: UnownedJob, of executor: some TaskExecutor) {
        waiting.append(job)
        if self.executor == nil { self.executor = executor }
    }

    /// Takes over all that came from other threads.
    mutating func append(_ arrivals: inout LoopJobArrivals) {
        for job in arrivals.jobs { waiting.append(job) }
        if executor == nil { executor = arrivals.executor }
        arrivals.removeAll()
    }

    mutating func popFirst() -> UnownedJob? {
        waiting.popFirst(keepingCapacity: Self.keptCapacity)
    }

    /// To be called when no job waits and no other thread is on its way to wake the loop. It may end the
    /// loop.
    mutating func dropExecutor() {
        if executor != nil { executor = nil }
    }
}

/// Jobs that come from other threads. They are changed under the loop's lock.
struct LoopJobArrivals {
    fileprivate var jobs: [UnownedJob] = []
    fileprivate var executor: (any TaskExecutor)?

    var isEmpty: Bool { jobs.isEmpty }

    mutating func append(_ job: UnownedJob, of executor: some TaskExecutor) {
        jobs.append(job)
        if self.executor == nil { self.executor = executor }
    }

    fileprivate mutating func removeAll() {
        jobs.removeAll(keepingCapacity: jobs.capacity <= LoopJobs.keptCapacity)
        executor = nil
    }
}

internal import SocketBuffers

/// The task jobs queued on a loop, in FIFO order. Confined to the loop's thread.
///
/// From the first job until `dropExecutor()`, the list keeps the executor (the loop) alive. A job has no
/// reference to its executor, and the loop must not be released while a job is queued.
struct LoopJobs: ~Copyable {
    private var waiting = Ring<UnownedJob>()
    private var executor: (any TaskExecutor)?

    /// The capacity that is kept when the list becomes empty.
    fileprivate static let keptCapacity = 256

    var isEmpty: Bool { waiting.isEmpty }

    /// The executor of the jobs. `nil` only if the list is empty.
    var unownedExecutor: UnownedTaskExecutor? { executor?.asUnownedTaskExecutor() }

    mutating func append(_ job: UnownedJob, of executor: some TaskExecutor) {
        waiting.append(job)
        if self.executor == nil { self.executor = executor }
    }

    /// Takes over all jobs from other threads.
    mutating func append(_ arrivals: inout LoopJobArrivals) {
        for job in arrivals.jobs { waiting.append(job) }
        if executor == nil { executor = arrivals.executor }
        arrivals.removeAll()
    }

    mutating func popFirst() -> UnownedJob? {
        waiting.popFirst(keepingCapacity: Self.keptCapacity)
    }

    /// Must be called only if no jobs are queued and no other thread is about to wake the loop. May release
    /// the loop.
    mutating func dropExecutor() {
        if executor != nil { executor = nil }
    }
}

/// Jobs from other threads, protected by the loop's lock.
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

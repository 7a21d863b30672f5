internal import Glibc
internal import Synchronization

/// The time that tasks may run on a loop before the loop polls the kernel for events again.
///
/// An operation that completes immediately does not suspend its task, so a task that always finds data would
/// occupy its loop forever. After each operation, a task therefore checks `isUsedUp(by:)`, and calls
/// `renew()` to let other work run. The clock is read from the third operation of a job onwards, and after a
/// job if more jobs are queued. A job that reads one message and writes another therefore does not read the
/// clock. While operations are short, only every fourth operation reads the clock.
package final class JobBudget {
    // Used only on the loop's thread, which finds it through `key`. Other threads may read only `user`,
    // which is atomic.

    /// The time budget in nanoseconds, measured from the first time the clock is read in a batch.
    private static let time: UInt64 = 1_000_000
    /// The number of operations in a job before the clock is read.
    private static let freeOperations = 2
    /// In nanoseconds. Operations that take less time than this on average are considered short.
    private static let shortTime: UInt64 = 20_000

    @exclusivity(unchecked) private var start: UInt64 = 0
    /// When the clock was last read for an operation.
    @exclusivity(unchecked) private var lastLook: UInt64 = 0
    /// The number of operations before the clock is read again.
    @exclusivity(unchecked) private var operationsLeft = 0
    /// The number of operations between two reads of the clock.
    @exclusivity(unchecked) private var interval: UInt64 = 1
    /// The number of jobs that have run, which identifies the current one.
    @exclusivity(unchecked) private(set) var jobNumber: UInt32 = 0
    @exclusivity(unchecked) private var waiting: [UnsafeContinuation<Void, Never>] = []
    /// The address of the handler that the job used last, or zero if unknown. Another thread compares it
    /// with the addresses of registered handlers.
    let user = Atomic<UInt>(0)

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        // If no key is available (a process has about a thousand), loops have no budget.
        return pthread_key_create(&key, nil) == 0 ? key : .max
    }()

    // MARK: - For operations of tasks

    /// Whether the task should call `renew()`, because it runs on a loop and the time is used up.
    ///
    /// - Parameter handler: The handler that completed an operation.
    @inline(never)
    package static func isUsedUp(by handler: AnyObject) -> Bool {
        withCurrent { $0.charge(handler) } ?? false
    }

    /// Suspends the task so that the loop can do other work, and resumes on the loop. Returns immediately if
    /// the task is not on a loop.
    @inline(never)
    package nonisolated(nonsending) static func renew() async {
        await withUnsafeContinuation { continuation in
            if withCurrent({ $0.waiting.append(continuation) }) == nil { continuation.resume() }
        }
    }

    @inline(__always)
    private static func withCurrent<Result>(_ body: (JobBudget) -> Result) -> Result? {
        guard let address = pthread_getspecific(key) else { return nil }
        return Unmanaged<JobBudget>.fromOpaque(address)._withUnsafeGuaranteedRef(body)
    }

    @inline(__always)
    private func charge(_ handler: AnyObject) -> Bool {
        user.store(LoopTable.address(of: handler), ordering: .relaxed)
        operationsLeft &-= 1
        return operationsLeft < 0 && look()
    }

    @inline(never)
    private func look() -> Bool {
        let now = Deadline.now.nanoseconds
        if start == 0 { start = now }
        let isShort = lastLook > 0 && now - lastLook < Self.shortTime * interval
        (lastLook, interval) = (now, isShort ? 4 : 1)
        operationsLeft = Int(interval) - 1
        return now - start >= Self.time
    }

    // MARK: - For the loop

    func enterThread() {
        pthread_setspecific(Self.key, Unmanaged.passUnretained(self).toOpaque())
    }

    func leaveThread() {
        pthread_setspecific(Self.key, nil)
    }

    /// Whether tasks are suspended in `renew()`.
    var hasWaiting: Bool { !waiting.isEmpty }

    /// Called after the loop has polled the kernel for events.
    func beginBatch() {
        start = 0
        guard hasWaiting else { return }
        let tasks = waiting
        waiting.removeAll(keepingCapacity: true)
        for task in tasks { task.resume() }
    }

    func beginJob() {
        (operationsLeft, lastLook, interval) = (Self.freeOperations, 0, 1)
        jobNumber &+= 1
        user.store(0, ordering: .relaxed)
    }

    /// Whether the time for the batch is used up. The time starts when the clock is first read.
    var isOver: Bool {
        let now = Deadline.now.nanoseconds
        if start == 0 { start = now }
        return now - start >= Self.time
    }
}

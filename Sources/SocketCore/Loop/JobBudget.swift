internal import Glibc
internal import Synchronization

/// The time that tasks may take on a loop before it asks the kernel for events again.
///
/// An operation that can be served at once does not suspend its task. A task that always finds bytes would
/// keep its loop for good, so each operation asks `isUsedUp(by:)` when it is over, and `renew()` lets the
/// others go first. The clock is read from a job's third operation on, and after a job behind which others
/// wait: a job that reads one message and writes another one reads no clock. While operations are short it is
/// read after every fourth one.
package final class JobBudget {
    // Confined to the loop's thread, which reaches it by `key`; `user` is atomic.

    /// Nanoseconds: from the first look at the clock in a batch on.
    private static let time: UInt64 = 1_000_000
    /// A job has no need for a look at the clock before it has had more operations than this.
    private static let freeOperations = 2
    /// Operations that take less than this on average are short.
    private static let shortTime: UInt64 = 20_000

    @exclusivity(unchecked) private var start: UInt64 = 0
    /// When the clock was last read for an operation.
    @exclusivity(unchecked) private var lastLook: UInt64 = 0
    /// So many operations may follow before the next look.
    @exclusivity(unchecked) private var operationsLeft = 0
    /// The operations between the last look and the next.
    @exclusivity(unchecked) private var interval: UInt64 = 1
    @exclusivity(unchecked) private var waiting: [UnsafeContinuation<Void, Never>] = []
    /// The address of the handler that the job used last; zero if unknown. Another thread compares it with
    /// the addresses that it knows.
    let user = Atomic<UInt>(0)

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        // Without a key, of which a process has a thousand, loops have no budget.
        return pthread_key_create(&key, nil) == 0 ? key : .max
    }()

    // MARK: - For operations of tasks

    /// True when the task should call `renew()`: it runs on a loop, and the time is used up.
    ///
    /// - Parameter handler: Whose operation is over.
    @inline(never)
    package static func isUsedUp(by handler: AnyObject) -> Bool {
        withCurrent { $0.charge(handler) } ?? false
    }

    /// Lets the loop serve others, and returns on the loop. Anywhere else it returns at once.
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

    /// This thread runs the loop from now on.
    func enterThread() {
        pthread_setspecific(Self.key, Unmanaged.passUnretained(self).toOpaque())
    }

    func leaveThread() {
        pthread_setspecific(Self.key, nil)
    }

    /// Tasks wait in `renew()`.
    var hasWaiting: Bool { !waiting.isEmpty }

    /// The loop has asked the kernel.
    func beginBatch() {
        start = 0
        guard hasWaiting else { return }
        let tasks = waiting
        waiting.removeAll(keepingCapacity: true)
        for task in tasks { task.resume() }
    }

    func beginJob() {
        (operationsLeft, lastLook, interval) = (Self.freeOperations, 0, 1)
        user.store(0, ordering: .relaxed)
    }

    /// True when the batch has had its time. The first look begins it.
    var isOver: Bool {
        let now = Deadline.now.nanoseconds
        if start == 0 { start = now }
        return now - start >= Self.time
    }
}

internal import FoundationEssentials
internal import SocketCore
internal import Synchronization

/// The task that owns a connection, in `withConnection` or a listener's `run`.
///
/// One cancellation handler covers all reads of that task, because a handler for each read would cost more
/// than the read. Child tasks are different tasks, and each of their reads installs its own handler.
struct TaskScope: ~Copyable, @unchecked Sendable {
    // Unchecked: only the owning task uses the waiter.

    /// The address of the task, which stays alive until `end()`. Zero means no task.
    private let task = Atomic<UInt>(0)
    /// The waiter for the task's reads, which never overlap.
    private var waiter: ReadWaiter?

    /// The waiter of the current task, if that task owns the connection.
    var reader: ReadWaiter? {
        let owner = task.load(ordering: .relaxed)
        guard owner != 0, owner == Self.currentTask else { return nil }
        return waiter
    }

    /// Makes the current task the owner. Returns `nil` if another task owns the connection.
    mutating func begin() -> ReadWaiter? {
        guard task.compareExchange(expected: 0, desired: Self.currentTask, ordering: .acquiring).exchanged else { return nil }
        let waiter = ReadWaiter(OperationLimit(nil), isScoped: true)
        self.waiter = waiter
        return waiter
    }

    /// Called by the task that called `begin()`.
    mutating func end() {
        waiter = nil
        task.store(0, ordering: .releasing)
    }

    private static var currentTask: UInt {
        withUnsafeCurrentTask { $0.map { unsafeBitCast($0, to: UInt.self) } ?? 0 }
    }
}

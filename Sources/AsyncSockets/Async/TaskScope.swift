internal import FoundationEssentials
internal import SocketCore
internal import Synchronization

/// The task that a connection belongs to, of `withConnection` or of a listener's `run`.
///
/// One handler looks after the cancellation of all its reads; a handler for each costs more than the read.
/// A child task is another task, and its reads have handlers of their own.
struct TaskScope: ~Copyable, @unchecked Sendable {
    // Unchecked: the waiter is used by the task alone.

    /// The address of the task, which is alive meanwhile; zero: none.
    private let task = Atomic<UInt>(0)
    /// The waiter for its reads, which come one after the other.
    private var waiter: ReadWaiter?

    /// The waiter of the current task, if the connection belongs to it.
    var reader: ReadWaiter? {
        let owner = task.load(ordering: .relaxed)
        guard owner != 0, owner == Self.currentTask else { return nil }
        return waiter
    }

    /// From now on the connection belongs to the current task; nil when it belongs to another one.
    mutating func begin() -> ReadWaiter? {
        guard task.compareExchange(expected: 0, desired: Self.currentTask, ordering: .acquiring).exchanged else { return nil }
        let waiter = ReadWaiter(OperationLimit(nil), isScoped: true)
        self.waiter = waiter
        return waiter
    }

    /// Called by the task that began.
    mutating func end() {
        waiter = nil
        task.store(0, ordering: .releasing)
    }

    private static var currentTask: UInt {
        withUnsafeCurrentTask { $0.map { unsafeBitCast($0, to: UInt.self) } ?? 0 }
    }
}

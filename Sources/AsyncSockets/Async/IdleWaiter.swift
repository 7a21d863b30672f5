internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// Closes a connection after a period without traffic.
///
/// The connection reads the deadline at the end of each turn, and the waiter then compares the transferred
/// bytes with its last sample. This adds no cost per byte, and no cost at all to a connection without such a
/// waiter.
///
/// The class is not generic, because the conformance of a generic class looks up its types at run time, in
/// every turn.
final class IdleWaiter: OperationWaiter {
    /// The traffic counters at the last check, and the deadline derived from them.
    private struct Look {
        var position: CarriedBytes?
        var end: Deadline?
    }

    let lateError: any Error
    private let seconds: Double
    private let position: @Sendable () -> CarriedBytes?
    private let last = Locked(Look())
    private let isOff = Atomic(false)

    /// - Parameter position: Returns a value that changes with each byte, or `nil` while the idle timeout is
    ///   suspended. Called inside the turn.
    init(_ timeout: Duration, error: AsyncSocketError, position: @escaping @Sendable () -> CarriedBytes?) {
        lateError = error
        seconds = max(timeout.inSeconds, 0)
        self.position = position
    }

    /// Deactivates the waiter. The connection removes it when it adds the next waiter or closes.
    func switchOff() {
        isOff.store(true, ordering: .relaxed)
    }

    var isAbandoned: Bool { isOff.load(ordering: .relaxed) }

    var deadline: Deadline? {
        guard !isAbandoned else { return nil }
        let now = position()
        return last.withLock { last in
            if now == nil || now != last.position {
                last = Look(position: now, end: Deadline(after: seconds))
            }
            return last.end
        }
    }

    func complete(_ result: Result<Void, any Error>) {}
}

/// Deactivates its waiter when the last copy of an iterator is released.
final class IdleGuard: Sendable {
    private let waiter: IdleWaiter

    init(_ waiter: IdleWaiter) {
        self.waiter = waiter
    }

    deinit { waiter.switchOff() }
}

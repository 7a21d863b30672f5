internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// Waits for the end of a connection, and ends it when nothing has moved for a while.
///
/// The connection asks for the deadline at the end of each turn, and that is when the waiter looks at what
/// was carried: a byte costs nothing more, and a connection without such a waiter nothing at all.
///
/// Not generic: a conformance of a generic class looks its types up at run time, for each turn.
final class IdleWaiter: OperationWaiter {
    /// Where the connection was when the waiter looked last.
    private struct Look {
        var position: CarriedBytes?
        var end: Deadline?
    }

    private let timeout: Duration
    private let seconds: Double
    private let position: @Sendable () -> CarriedBytes?
    private let last = Locked(Look())
    private let isOff = Atomic(false)

    /// - Parameter position: Changes with each byte, and is nil while silence does not count. Called inside
    ///   the turn.
    init(_ timeout: Duration, position: @escaping @Sendable () -> CarriedBytes?) {
        self.timeout = timeout
        seconds = max(timeout.inSeconds, 0)
        self.position = position
    }

    /// It waits no more. The connection forgets it with the next one, or at its end.
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

    var lateError: any Error { AsyncSocketError.idle(for: timeout) }

    func complete(_ result: Result<Void, any Error>) {}
}

/// Ends the wait of its waiter when the last copy of an iterator goes.
final class IdleGuard: Sendable {
    private let waiter: IdleWaiter

    init(_ waiter: IdleWaiter) {
        self.waiter = waiter
    }

    deinit { waiter.switchOff() }
}

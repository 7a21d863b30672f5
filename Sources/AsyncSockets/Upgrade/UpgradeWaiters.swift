internal import SocketCore
internal import SocketTLS

/// The waiters of an upgrade: for its end, and for the questions on the way. Of a connection or of a UDP
/// socket.
struct UpgradeWaiters {
    private struct Waiter {
        let waiter: any OperationWaiter<HandshakeNews>
        /// It decides about the peer's certificate, not the delegate.
        let decidesTrust: Bool
    }

    // In an array, which takes one word and no memory while it is empty: mostly one waits.
    private var waiting: [Waiter] = []

    var isEmpty: Bool { waiting.isEmpty }

    mutating func add(_ waiter: (any OperationWaiter<HandshakeNews>)?, decidesTrust: Bool) {
        if let waiter { waiting.append(Waiter(waiter: waiter, decidesTrust: decidesTrust)) }
    }

    /// False when nothing waits for that, and the delegate gets the event.
    mutating func answer(_ news: HandshakeNews) -> Bool {
        let index = waiting.firstIndex { waiter in
            if case .asksTrust = news { waiter.decidesTrust } else { true }
        }
        guard let index else { return false }
        waiting.remove(at: index).waiter.complete(.success(news))
        return true
    }

    /// Answers everyone who waits: what was asked for has failed.
    mutating func refuseAll(_ error: any Error) {
        let refused = waiting
        waiting = []
        for waiter in refused { waiter.waiter.complete(.failure(error)) }
    }

    /// Takes one out, to be answered with an error; nil when it does not wait here.
    mutating func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? {
        guard let index = waiting.firstIndex(where: { $0.waiter === waiter }) else { return nil }
        let removed = waiting.remove(at: index).waiter
        return { removed.complete(.failure($0)) }
    }

    /// When the first of them, or `clock`, stops to wait.
    func deadline(with clock: PhaseClock?) -> Deadline? {
        waiting.reduce(clock?.deadline) { .earlier($0, $1.waiter.deadline) }
    }

    /// A waiter whose time has come, and its answer.
    func late(at now: Deadline) -> (waiter: AnyObject, error: any Error)? {
        let late = waiting.first { $0.waiter.deadline.map { $0 <= now } ?? false }
        return late.map { ($0.waiter, $0.waiter.lateError) }
    }
}

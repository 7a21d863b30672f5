internal import SocketCore
internal import SocketTLS

/// The waiters for an upgrade's completion and for the trust decisions during the upgrade. Used for
/// connections and UDP sockets.
struct UpgradeWaiters {
    private struct Waiter {
        let waiter: any OperationWaiter<HandshakeNews>
        /// Whether this waiter, not the delegate, decides whether to trust the peer's certificate.
        let decidesTrust: Bool
    }

    // An array takes one word, and allocates no memory while it is empty. Usually there is only one waiter.
    private var waiting: [Waiter] = []

    var isEmpty: Bool { waiting.isEmpty }

    mutating func add(_ waiter: (any OperationWaiter<HandshakeNews>)?, decidesTrust: Bool) {
        if let waiter { waiting.append(Waiter(waiter: waiter, decidesTrust: decidesTrust)) }
    }

    /// Completes a waiter with `news`. Returns `false` if no waiter accepts it, so the delegate is notified
    /// instead.
    mutating func answer(_ news: HandshakeNews) -> Bool {
        let index = waiting.firstIndex { waiter in
            if case .asksTrust = news { waiter.decidesTrust } else { true }
        }
        guard let index else { return false }
        waiting.remove(at: index).waiter.complete(.success(news))
        return true
    }

    mutating func refuseAll(_ error: any Error) {
        let refused = waiting
        waiting = []
        for waiter in refused { waiter.waiter.complete(.failure(error)) }
    }

    /// Removes a waiter. Returns a closure that completes the waiter with an error, or `nil` if the waiter
    /// was not found.
    mutating func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? {
        guard let index = waiting.firstIndex(where: { $0.waiter === waiter }) else { return nil }
        let removed = waiting.remove(at: index).waiter
        return { removed.complete(.failure($0)) }
    }

    func deadline(with clock: PhaseClock?) -> Deadline? {
        waiting.reduce(clock?.deadline) { .earlier($0, $1.waiter.deadline) }
    }

    /// Returns a waiter with an expired deadline, and its error.
    func late(at now: Deadline) -> (waiter: AnyObject, error: any Error)? {
        let late = waiting.first { $0.waiter.deadline.map { $0 <= now } ?? false }
        return late.map { ($0.waiter, $0.waiter.lateError) }
    }
}

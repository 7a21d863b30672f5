internal import SocketCore

/// The waiters for a connection to be established or closed. The waiters for TLS are stored in the
/// connection's `HandshakeDriver`.
struct LifecycleWaiters {
    private enum Waiter {
        case connected(any OperationWaiter<Void>)
        case ended(any OperationWaiter<Void>)

        var waiter: any OperationWaiter<Void> {
            switch self {
            case .connected(let waiter), .ended(let waiter): waiter
            }
        }

        /// Completes the waiter when the connection has closed. For `.ended` this is the expected result.
        func answerEnd(_ error: any Error) {
            switch self {
            case .connected(let waiter): waiter.complete(.failure(error))
            case .ended(let waiter): waiter.complete(.success(()))
            }
        }

        func refuse(_ error: any Error) {
            waiter.complete(.failure(error))
        }
    }

    // Usually empty, and an empty array uses no memory.
    private var waiting: [Waiter] = []

    var isEmpty: Bool { waiting.isEmpty }
    var count: Int { waiting.count }

    var deadline: Deadline? {
        // The common case.
        if waiting.count == 1 { return waiting[0].waiter.deadline }
        return waiting.reduce(nil) { .earlier($0, $1.waiter.deadline) }
    }

    mutating func add(connected waiter: (any OperationWaiter<Void>)?) {
        if let waiter { waiting.append(.connected(waiter)) }
    }

    mutating func add(ended waiter: any OperationWaiter<Void>) {
        waiting.removeAll { $0.waiter.isAbandoned }
        waiting.append(.ended(waiter))
    }

    /// Completes the waiter for an established connection. Returns `false` if there is no such waiter, and
    /// the delegate must be notified.
    mutating func answerConnected() -> Bool {
        for (index, waiter) in waiting.enumerated() {
            guard case .connected(let waiter) = waiter else { continue }
            waiting.remove(at: index)
            waiter.complete(.success(()))
            return true
        }
        return false
    }

    mutating func answerEnd(_ error: @autoclosure () -> any Error) {
        // Boxing the error costs memory.
        guard !waiting.isEmpty else { return }
        let error = error()
        let answered = waiting
        waiting = []
        for waiter in answered { waiter.answerEnd(error) }
    }

    /// Returns how the connection closes: with a reset if it fails during a relay.
    func adjust(_ intent: CloseIntent, _ error: AsyncSocketError?) -> CloseIntent {
        guard !waiting.isEmpty, let error, !error.isOrderlyEnd else { return intent }
        return waiting.contains { $0.waiter.resetsOnFailure } ? .reset : intent
    }

    /// Removes a waiter and returns the function that completes it with an error, or `nil` if the waiter was
    /// not found.
    mutating func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? {
        guard let index = waiting.firstIndex(where: { $0.waiter === waiter }) else { return nil }
        return waiting.remove(at: index).refuse
    }

    /// Returns a waiter with an expired deadline, and its error.
    func late(at now: Deadline) -> (waiter: AnyObject, error: any Error)? {
        let late = waiting.first { $0.waiter.deadline.map { $0 <= now } ?? false }
        return late.map { ($0.waiter, $0.waiter.lateError) }
    }
}

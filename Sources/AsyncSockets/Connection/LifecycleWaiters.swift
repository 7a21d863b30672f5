internal import SocketCore

/// The waiters for a step in the life of a connection: established, ended. Those for TLS wait in its
/// `Upgrade`.
struct LifecycleWaiters {
    private enum Waiter {
        case connected(any OperationWaiter<Void>)
        case ended(any OperationWaiter<Void>)

        var waiter: any OperationWaiter<Void> {
            switch self {
            case .connected(let waiter), .ended(let waiter): waiter
            }
        }

        /// The connection has ended: what the last of them has waited for.
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

    // Usually nothing waits, and an empty array takes no memory.
    private var waiting: [Waiter] = []

    var isEmpty: Bool { waiting.isEmpty }
    /// How many wait.
    var count: Int { waiting.count }

    /// When the first of them stops to wait.
    var deadline: Deadline? {
        // One waits, mostly.
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

    /// The connection is established; false when nothing waits, and the delegate gets the event.
    mutating func answerConnected() -> Bool {
        for (index, waiter) in waiting.enumerated() {
            guard case .connected(let waiter) = waiter else { continue }
            waiting.remove(at: index)
            waiter.complete(.success(()))
            return true
        }
        return false
    }

    /// The connection has ended: answers all waiters.
    mutating func answerEnd(_ error: @autoclosure () -> any Error) {
        // An error in a box of its own costs memory.
        guard !waiting.isEmpty else { return }
        let error = error()
        let answered = waiting
        waiting = []
        for waiter in answered { waiter.answerEnd(error) }
    }

    /// Takes one out, to be answered with an error; nil when it does not wait here.
    mutating func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? {
        guard let index = waiting.firstIndex(where: { $0.waiter === waiter }) else { return nil }
        return waiting.remove(at: index).refuse
    }

    /// One whose time has come, and its answer.
    func late(at now: Deadline) -> (waiter: AnyObject, error: any Error)? {
        let late = waiting.first { $0.waiter.deadline.map { $0 <= now } ?? false }
        return late.map { ($0.waiter, $0.waiter.lateError) }
    }
}

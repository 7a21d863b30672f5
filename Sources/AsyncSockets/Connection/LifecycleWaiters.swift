internal import SocketCore
internal import SocketTLS

/// The waiters for a step in the life of a connection: established, secure.
struct LifecycleWaiters {
    private enum Waiter {
        case connected(any OperationWaiter<Void>)
        case secured(any OperationWaiter<TLSSession?>)

        var object: AnyObject {
            switch self {
            case .connected(let waiter): waiter
            case .secured(let waiter): waiter
            }
        }

        func refuse(_ error: any Error) {
            switch self {
            case .connected(let waiter): waiter.complete(.failure(error))
            case .secured(let waiter): waiter.complete(.failure(error))
            }
        }
    }

    // Usually no one waits, and an empty array takes no memory.
    private var waiting: [Waiter] = []

    mutating func add(connected waiter: (any OperationWaiter<Void>)?) {
        if let waiter { waiting.append(.connected(waiter)) }
    }

    mutating func add(secured waiter: (any OperationWaiter<TLSSession?>)?) {
        if let waiter { waiting.append(.secured(waiter)) }
    }

    /// The connection is established; false when no one waits and the delegate gets the event.
    mutating func answerConnected() -> Bool {
        for (index, waiter) in waiting.enumerated() {
            guard case .connected(let waiter) = waiter else { continue }
            waiting.remove(at: index)
            waiter.complete(.success(()))
            return true
        }
        return false
    }

    /// The connection is secure; false when no one waits and the delegate gets the event.
    mutating func answerSecured(_ session: TLSSession?) -> Bool {
        for (index, waiter) in waiting.enumerated() {
            guard case .secured(let waiter) = waiter else { continue }
            waiting.remove(at: index)
            waiter.complete(.success(session))
            return true
        }
        return false
    }

    /// The connection has ended: answers all waiters.
    mutating func refuseAll(_ error: any Error) {
        let refused = waiting
        waiting = []
        for waiter in refused { waiter.refuse(error) }
    }

    /// Answers one; false when it does not wait here.
    mutating func refuse(_ waiter: AnyObject, _ error: any Error) -> Bool {
        guard let index = waiting.firstIndex(where: { $0.object === waiter }) else { return false }
        waiting.remove(at: index).refuse(error)
        return true
    }
}

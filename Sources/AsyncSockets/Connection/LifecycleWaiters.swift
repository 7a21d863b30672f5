internal import SocketCore
internal import SocketTLS

/// The waiters for a step in the life of a connection: established, secure, ended.
struct LifecycleWaiters {
    private enum Waiter {
        case connected(any OperationWaiter<Void>)
        case secured(any OperationWaiter<HandshakeNews>, decidesTrust: Bool)
        case ended(any OperationWaiter<Void>)

        var object: AnyObject {
            switch self {
            case .connected(let waiter), .ended(let waiter): waiter
            case .secured(let waiter, _): waiter
            }
        }

        var deadline: Deadline? {
            switch self {
            case .connected(let waiter), .ended(let waiter): waiter.deadline
            case .secured(let waiter, _): waiter.deadline
            }
        }

        var isAbandoned: Bool {
            if case .ended(let waiter) = self { waiter.isAbandoned } else { false }
        }

        var lateError: any Error {
            switch self {
            case .connected(let waiter), .ended(let waiter): waiter.lateError
            case .secured(let waiter, _): waiter.lateError
            }
        }

        /// The connection has ended: what the last of them has waited for.
        func answerEnd(_ error: any Error) {
            switch self {
            case .connected(let waiter): waiter.complete(.failure(error))
            case .secured(let waiter, _): waiter.complete(.failure(error))
            case .ended(let waiter): waiter.complete(.success(()))
            }
        }

        func refuse(_ error: any Error) {
            switch self {
            case .connected(let waiter), .ended(let waiter): waiter.complete(.failure(error))
            case .secured(let waiter, _): waiter.complete(.failure(error))
            }
        }
    }

    // Usually no one waits, and an empty array takes no memory.
    private var waiting: [Waiter] = []

    var isEmpty: Bool { waiting.isEmpty }
    /// How many wait.
    var count: Int { waiting.count }

    /// When the first of them stops to wait.
    var deadline: Deadline? {
        waiting.reduce(nil) { .earlier($0, $1.deadline) }
    }

    mutating func add(connected waiter: (any OperationWaiter<Void>)?) {
        if let waiter { waiting.append(.connected(waiter)) }
    }

    /// - Parameter decidesTrust: The waiter decides about the peer's certificate, not the delegate.
    mutating func add(secured waiter: (any OperationWaiter<HandshakeNews>)?, decidesTrust: Bool) {
        if let waiter { waiting.append(.secured(waiter, decidesTrust: decidesTrust)) }
    }

    mutating func add(ended waiter: any OperationWaiter<Void>) {
        waiting.removeAll { $0.isAbandoned }
        waiting.append(.ended(waiter))
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

    /// The handshake has got somewhere; false when no one waits for that and the delegate gets the event.
    mutating func answerSecured(_ news: HandshakeNews) -> Bool {
        for (index, waiter) in waiting.enumerated() {
            guard case .secured(let waiter, let decidesTrust) = waiter else { continue }
            if case .asksTrust = news, !decidesTrust { continue }
            waiting.remove(at: index)
            waiter.complete(.success(news))
            return true
        }
        return false
    }

    /// What the waiter for TLS asked for has failed; false when no one waits for that.
    mutating func refuseSecured(_ error: any Error) -> Bool {
        guard let index = waiting.firstIndex(where: { if case .secured = $0 { true } else { false } }) else { return false }
        waiting.remove(at: index).refuse(error)
        return true
    }

    /// The connection has ended: answers all waiters.
    mutating func answerEnd(_ error: any Error) {
        let answered = waiting
        waiting = []
        for waiter in answered { waiter.answerEnd(error) }
    }

    /// Takes one out, to be answered with an error; nil when it does not wait here.
    mutating func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? {
        guard let index = waiting.firstIndex(where: { $0.object === waiter }) else { return nil }
        return waiting.remove(at: index).refuse
    }

    /// One whose time has come, and its answer.
    func late(at now: Deadline) -> (waiter: AnyObject, error: any Error)? {
        let late = waiting.first { $0.deadline.map { $0 <= now } ?? false }
        return late.map { ($0.object, $0.lateError) }
    }
}

/// What a waiter for TLS learns.
enum HandshakeNews: Sendable {
    case secured(TLSSession?)
    /// The waiter decides about the peer's certificate, and waits again.
    indirect case asksTrust(PeerTrust, TrustQuestionNumber)
}

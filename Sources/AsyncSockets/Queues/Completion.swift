// Rules for completion:
//  1. Every accepted operation is completed exactly once: served, dropped, rejected or cancelled.
//  2. A queue that gives up an operation returns its completion, and the code that receives it must complete
//     it.
//  3. A delegate receives the tag of a served operation. For dropped and rejected operations, it receives
//     only the end of the connection. A waiter receives a result for each operation.
//  4. A waiter waits for one operation and therefore also identifies it.
//  5. A waiter's timeout starts when the operation is requested. When it expires, the operation is cancelled,
//     but fails with a different error.

internal import SocketCore

/// An object that waits for the result of one operation.
protocol OperationWaiter<Value>: AnyObject, Sendable {
    associatedtype Value: Sendable

    /// When the waiter stops waiting, or `nil` for no limit.
    var deadline: Deadline? { get }
    /// The error to complete with when the deadline has passed.
    var lateError: any Error { get }
    /// Whether the result is no longer needed.
    var isAbandoned: Bool { get }
    /// Whether the connection is reset if it fails before this is complete.
    var resetsOnFailure: Bool { get }
    /// Completes the operation. Called once, inside the turn. The implementation resumes a task and runs no
    /// user code.
    ///
    /// The request for an operation is always handled before its cancellation.
    func complete(_ result: Result<Value, any Error>)
}

extension OperationWaiter {
    var isAbandoned: Bool { false }
    var resetsOnFailure: Bool { false }
}

/// The delegate or waiter to notify when an operation finishes.
enum Completion<Value: Sendable>: Sendable {
    /// The delegate, with the tag of the operation.
    case delegate(tag: Int)
    case waiter(any OperationWaiter<Value>)
    /// The operation was cancelled while in progress, or completed early, and its result has already been
    /// delivered.
    case answered

    /// The tag for the delegate, or 0 for an operation that was not requested by a delegate.
    var tag: Int {
        if case .delegate(let tag) = self { tag } else { 0 }
    }

    var isDelegates: Bool {
        if case .delegate = self { true } else { false }
    }

    var isWaiters: Bool {
        if case .waiter = self { true } else { false }
    }

    /// When the waiter stops waiting. `nil` if the waiter has no limit, or without a waiter.
    var deadline: Deadline? {
        if case .waiter(let waiter) = self { waiter.deadline } else { nil }
    }

    func lateWaiter(at now: Deadline) -> (any OperationWaiter<Value>)? {
        guard case .waiter(let waiter) = self, let deadline = waiter.deadline, deadline <= now else { return nil }
        return waiter
    }

    func answers(_ waiter: AnyObject) -> Bool {
        if case .waiter(let mine) = self { mine === waiter } else { false }
    }
}

/// The result of an attempt to cancel an operation, with the completion to call.
enum Cancellation<Value: Sendable>: Sendable {
    /// The operation was removed, as if it had never been requested.
    case removed(Completion<Value>)
    /// The operation has already started and continues. Its completion will not be reported again.
    case detached(Completion<Value>)
    /// The operation has already finished, or belongs to another queue.
    case tooLate

    var completion: Completion<Value>? {
        switch self {
        case .removed(let completion), .detached(let completion): completion
        case .tooLate: nil
        }
    }
}

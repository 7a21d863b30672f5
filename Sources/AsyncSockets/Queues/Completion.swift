// Rules of completion:
//  1. Every operation that is accepted is answered exactly once: served, dropped, refused or cancelled.
//  2. A queue that gives up an operation returns its completion; the code that takes it answers it.
//  3. A delegate gets the tag of a served operation. It learns of one that is dropped or refused by the end
//     of the connection; a waiter gets an answer for each.
//  4. A waiter waits for one operation. It is therefore also the operation's identifier.
//  5. A waiter's time runs from the moment when it asks. An operation that is late ends as if it were
//     cancelled, with another error.

internal import SocketCore

/// A waiter for the end of one operation.
protocol OperationWaiter<Value>: AnyObject, Sendable {
    /// The result of the operation.
    associatedtype Value: Sendable

    /// When it stops to wait; nil: never.
    var deadline: Deadline? { get }
    /// The answer when that time has come.
    var lateError: any Error { get }
    /// Its answer is of no use any more.
    var isAbandoned: Bool { get }
    /// The answer. Called inside the turn, once: resume a task, and run no user code.
    ///
    /// A cancellation finds an operation that was asked for before it.
    func complete(_ result: Result<Value, any Error>)
}

extension OperationWaiter {
    var isAbandoned: Bool { false }
}

/// The delegate or the waiter that is answered when an operation ends.
enum Completion<Value: Sendable>: Sendable {
    /// The delegate, with the tag that the operation was given.
    case delegate(tag: Int)
    case waiter(any OperationWaiter<Value>)
    /// The operation was cancelled while it was under way, and its answer was given then.
    case answered

    /// The tag for the delegate; 0 for an operation that no delegate asked for.
    var tag: Int {
        if case .delegate(let tag) = self { tag } else { 0 }
    }

    /// True when the delegate gets the answer.
    var isDelegates: Bool {
        if case .delegate = self { true } else { false }
    }

    /// True when a waiter gets the answer.
    var isWaiters: Bool {
        if case .waiter = self { true } else { false }
    }

    /// When the waiter stops to wait; nil: never, or nothing waits.
    var deadline: Deadline? {
        if case .waiter(let waiter) = self { waiter.deadline } else { nil }
    }

    /// The waiter, once its time has come.
    func lateWaiter(at now: Deadline) -> (any OperationWaiter<Value>)? {
        guard case .waiter(let waiter) = self, let deadline = waiter.deadline, deadline <= now else { return nil }
        return waiter
    }

    /// True when this answers `waiter`.
    func answers(_ waiter: AnyObject) -> Bool {
        if case .waiter(let mine) = self { mine === waiter } else { false }
    }
}

/// The result of an attempt to cancel an operation, and the completion to answer.
enum Cancellation<Value: Sendable>: Sendable {
    /// The operation is gone, as if it had never been asked for.
    case removed(Completion<Value>)
    /// The operation has begun and goes on; no answer follows when it ends.
    case detached(Completion<Value>)
    /// The operation has ended, or belongs to another queue.
    case tooLate

    /// The completion to answer now.
    var completion: Completion<Value>? {
        switch self {
        case .removed(let completion), .detached(let completion): completion
        case .tooLate: nil
        }
    }
}

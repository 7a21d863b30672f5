// Rules of completion:
//  1. Every operation that is accepted is answered exactly once: served, dropped, refused or cancelled.
//  2. A queue that gives up an operation returns its completion; the code that takes it answers it.
//  3. A delegate gets the tag of a served operation. It learns of one that is dropped or refused by the end
//     of the connection; a waiter gets an answer for each.
//  4. A waiter waits for one operation. It is therefore also the operation's identifier.

/// A waiter for the end of one operation.
package protocol OperationWaiter<Value>: AnyObject, Sendable {
    /// What the operation brings.
    associatedtype Value: Sendable

    /// The answer. Called inside the turn, once: resume a task, and run no user code.
    ///
    /// A cancellation finds an operation that was asked for before it. A waiter that may be cancelled earlier
    /// remembers that, and is then not asked for.
    func complete(_ result: Result<Value, any Error>)
}

/// Who is answered when an operation ends.
package enum Completion<Value: Sendable>: Sendable {
    /// The delegate, with the tag that the operation was given.
    case delegate(tag: Int)
    case waiter(any OperationWaiter<Value>)
    /// The operation was cancelled while it was under way, and its answer was given then.
    case answered

    /// The tag for the delegate; 0 for an operation that no delegate asked for.
    package var tag: Int {
        if case .delegate(let tag) = self { tag } else { 0 }
    }

    /// True when the delegate gets the answer.
    package var isDelegates: Bool {
        if case .delegate = self { true } else { false }
    }

    /// True when this answers `waiter`.
    package func answers(_ waiter: AnyObject) -> Bool {
        if case .waiter(let mine) = self { mine === waiter } else { false }
    }
}

/// What became of an attempt to cancel an operation, and who is to be answered.
package enum Cancellation<Value: Sendable>: Sendable {
    /// The operation is gone, as if it had never been asked for.
    case removed(Completion<Value>)
    /// The operation has begun and goes on; no one is answered when it ends.
    case detached(Completion<Value>)
    /// The operation has ended, or belongs to another queue.
    case tooLate

    /// Who is to be answered now.
    package var completion: Completion<Value>? {
        switch self {
        case .removed(let completion), .detached(let completion): completion
        case .tooLate: nil
        }
    }
}

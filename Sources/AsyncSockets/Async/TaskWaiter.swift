// Rules of a task that waits:
//  1. The operation is asked for first, and the task waits for it then: it may have its answer already.
//  2. There is one answer. The side that comes second, the answer or the task, resumes the task.
//  3. A cancellation is asked for after the operation, and finds it or comes too late. The task waits for the
//     answer all the same: so it knows what became of its bytes.
//  4. Where a scope looks after the cancellation of its task (`TaskScope`), its waiters do not: they ask once
//     whether the task is cancelled, after the operation was asked for.

internal import FoundationEssentials
internal import SocketCore
internal import Synchronization

/// Where tasks ask for operations.
protocol OperationOwner: AnyObject, Sendable {
    /// Anywhere: the operation of a waiter is to be cancelled, if it is not over.
    func giveUp(_ waiter: any AnyObject & Sendable)
}

/// A task that waits for the answer to one operation.
class TaskWaiter<Value: Sendable>: @unchecked Sendable {
    // Unchecked: each side writes its own field before it exchanges the state, and reads the other's after.
    private enum State {
        static var asked: UInt8 { 0 }
        static var answered: UInt8 { 1 }
        static var waiting: UInt8 { 2 }
    }

    private let state = Atomic<UInt8>(State.asked)
    private let operation: OperationKind
    @exclusivity(unchecked) private var limit: OperationLimit
    @exclusivity(unchecked) private var result: Result<Value, any Error>?
    @exclusivity(unchecked) private var continuation: UnsafeContinuation<Value, any Error>?

    init(_ operation: OperationKind, _ limit: OperationLimit) {
        self.operation = operation
        self.limit = limit
    }

    final var deadline: Deadline? { limit.deadline }

    final var lateError: any Error { limit.error(of: operation) }

    /// The answer, if it is there already.
    final var earlyAnswer: Result<Value, any Error>? {
        state.load(ordering: .acquiring) == State.answered ? result : nil
    }

    /// The answer. If the task is cancelled, the owner is asked to cancel the operation.
    @inline(never)
    nonisolated(nonsending) final func value(from owner: any OperationOwner) async throws -> Value {
        if let earlyAnswer { return try earlyAnswer.get() }
        return try await withTaskCancellationHandler {
            try await withUnsafeThrowingContinuation { wait(with: $0) }
        } onCancel: {
            owner.giveUp(self)
        }
    }

    /// Has the answer resume a task.
    final func wait(with continuation: UnsafeContinuation<Value, any Error>) {
        self.continuation = continuation
        let (waits, _) = state.compareExchange(
            expected: State.asked, desired: State.waiting, ordering: .acquiringAndReleasing)
        if !waits, let result { continuation.resume(with: result) }
    }

    @inline(__always)
    final func answer(_ result: Result<Value, any Error>) {
        if state.load(ordering: .acquiring) == State.asked {
            self.result = result
            let (isKept, _) = state.compareExchange(
                expected: State.asked, desired: State.answered, ordering: .acquiringAndReleasing)
            if isKept { return }
        }
        continuation?.resume(with: result)
    }

    /// Prepares it for another operation of the task, which has its answer.
    final func restart(_ limit: OperationLimit) {
        self.limit = limit
        result = nil
        state.store(State.asked, ordering: .releasing)
    }
}

// Each kind of waiter has a conformance of its own: the conformance of a generic class would look its types
// up at run time, for each answer.

final class ReadWaiter: TaskWaiter<Data>, OperationWaiter, @unchecked Sendable {
    /// A scope looks after its cancellation.
    let isScoped: Bool
    private let cancelled = Atomic(false)

    /// The task of the scope is cancelled.
    var isCancelled: Bool { cancelled.load(ordering: .acquiring) }

    func cancel() {
        cancelled.store(true, ordering: .releasing)
    }

    init(_ limit: OperationLimit, isScoped: Bool) {
        self.isScoped = isScoped
        super.init(.read, limit)
    }

    func complete(_ result: Result<Data, any Error>) { answer(result) }
}

/// Waits for a write, for the connection or for its end.
final class DoneWaiter: TaskWaiter<Void>, OperationWaiter, @unchecked Sendable {
    func complete(_ result: Result<Void, any Error>) { answer(result) }
}

final class HandshakeWaiter: TaskWaiter<HandshakeNews>, OperationWaiter, @unchecked Sendable {
    func complete(_ result: Result<HandshakeNews, any Error>) { answer(result) }
}

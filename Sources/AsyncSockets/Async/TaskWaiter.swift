// Rules of a waiting task:
//  1. The operation is requested before the task suspends, so it may already be complete by then.
//  2. There is exactly one result. If it arrives before the task has suspended, the task continues
//     immediately.
//  3. A cancellation is posted after the operation, so it either finds the operation or is too late. In both
//     cases, the task receives the result of the operation, which shows what happened to its bytes.
//  4. If a scope handles cancellation for its task (`TaskScope`), the scope's waiters install no handler.
//     They check once whether the task is cancelled, after the operation was requested.

internal import FoundationEssentials
internal import SocketCore
internal import Synchronization

/// The object from which a task requests operations.
protocol OperationOwner: AnyObject, Sendable {
    /// Callable from any thread. Cancels the operation of a waiter unless the operation is complete.
    func giveUp(_ waiter: any AnyObject & Sendable)
}

/// A task waiting for the result of one operation.
class TaskWaiter<Value: Sendable>: @unchecked Sendable {
    // Unchecked: each side writes its own field before it exchanges the state, and reads the other field
    // afterwards.
    private enum State {
        static var asked: UInt8 { 0 }
        static var answered: UInt8 { 1 }
        static var waiting: UInt8 { 2 }
    }

    private let state = Atomic<UInt8>(State.asked)
    private let operation: AsyncSocketError.Operation
    @exclusivity(unchecked) private var limit: OperationLimit
    @exclusivity(unchecked) private var result: Result<Value, any Error>?
    @exclusivity(unchecked) private var continuation: UnsafeContinuation<Value, any Error>?

    init(_ operation: AsyncSocketError.Operation, _ limit: OperationLimit) {
        self.operation = operation
        self.limit = limit
    }

    final var deadline: Deadline? { limit.deadline }

    final var lateError: any Error { limit.error(of: operation) }

    final var earlyAnswer: Result<Value, any Error>? {
        state.load(ordering: .acquiring) == State.answered ? result : nil
    }

    /// Returns the result as soon as it arrives. If the task is cancelled, the owner cancels the operation.
    @inline(never)
    nonisolated(nonsending) final func value(from owner: any OperationOwner) async throws -> Value {
        if let earlyAnswer { return try earlyAnswer.get() }
        return try await withTaskCancellationHandler {
            try await withUnsafeThrowingContinuation { wait(with: $0) }
        } onCancel: {
            owner.giveUp(self)
        }
    }

    /// Arranges for `continuation` to be resumed with the result, immediately if the result has already
    /// arrived.
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

    /// Prepares the waiter for the task's next operation. The previous operation must be complete.
    final func restart(_ limit: OperationLimit) {
        self.limit = limit
        result = nil
        state.store(State.asked, ordering: .releasing)
    }
}

// Each kind of waiter declares its own conformance. The conformance of a generic class would look up its
// types at run time, for each result.

final class ReadWaiter: TaskWaiter<Data>, OperationWaiter, @unchecked Sendable {
    /// Whether a scope handles cancellation.
    let isScoped: Bool
    private let cancelled = Atomic(false)

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

/// Waits for a write, for the connection to be established, or for it to close.
final class DoneWaiter: TaskWaiter<Void>, OperationWaiter, @unchecked Sendable {
    func complete(_ result: Result<Void, any Error>) { answer(result) }
}

final class HandshakeWaiter: TaskWaiter<HandshakeNews>, OperationWaiter, @unchecked Sendable {
    func complete(_ result: Result<HandshakeNews, any Error>) { answer(result) }
}

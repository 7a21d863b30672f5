internal import SocketBuffers

extension OperationLimit {
    /// Runs user code in a separate task, and returns when that code returns.
    ///
    /// At the deadline, or if the caller is cancelled, this cancels the task and throws without waiting for
    /// it.
    nonisolated(nonsending) func run(
        _ operation: AsyncSocketError.Operation, _ body: @escaping @Sendable () async throws -> Void
    ) async throws {
        let call = BoundedCall(operation, self)
        let task = Task(executorPreference: .preferredByCurrentTask) { call.end(await Result.of(body)) }
        let alarm = deadline.map { Alarm(at: $0) { call.end(.failure(error(of: operation))) } }
        defer {
            alarm?.stop()
            task.cancel()
        }
        try await call.waiter.value(from: call)
    }
}

/// Completes a waiter exactly once: with a result, at the deadline, or on cancellation of the caller.
private final class BoundedCall: OperationOwner {
    let waiter: DoneWaiter
    private let isOver = Locked(false)

    init(_ operation: AsyncSocketError.Operation, _ limit: OperationLimit) { waiter = DoneWaiter(operation, limit) }

    func end(_ result: Result<Void, any Error>) {
        let isFirst = isOver.withLock { isOver in
            defer { isOver = true }
            return !isOver
        }
        if isFirst { waiter.complete(result) }
    }

    func giveUp(_ waiter: any AnyObject & Sendable) { end(.failure(CancellationError())) }
}

extension Result<Void, any Error> {
    fileprivate static func of(_ body: @Sendable () async throws -> Void) async -> Self {
        do { return .success(try await body()) } catch { return .failure(error) }
    }
}

extension Optional where Wrapped == any TaskExecutor {
    /// The executor preference of the current task. Child tasks inherit it, but unstructured tasks do not.
    ///
    /// Always `nil` with Swift 6.2, which cannot convert the preference to an executor.
    static var preferredByCurrentTask: Self {
        #if compiler(>=6.3)
        withUnsafeCurrentTask { $0?.unownedTaskExecutor?.asTaskExecutor() }
        #else
        nil
        #endif
    }
}

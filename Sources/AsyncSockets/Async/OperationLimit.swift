internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The deadline of a task's operation: its own timeout or the deadline of the enclosing `withDeadline`,
/// whichever is earlier.
struct OperationLimit: Sendable {
    /// `nil` means no deadline.
    private(set) var deadline: Deadline?
    /// The operation's timeout in seconds. `nil` if it has no timeout, or if the deadline of the enclosing
    /// `withDeadline` is earlier.
    private var timeout: Double?

    @TaskLocal fileprivate static var scope: Deadline?
    /// Whether `withDeadline` has ever been called. Looking up a task-local deadline takes 90 instructions,
    /// and many programs do not use deadlines.
    fileprivate static let hasScopes = Atomic(false)

    /// Creates a limit of `timeout` from now, or the task's deadline if that is earlier.
    init(_ timeout: Duration?) {
        deadline = Self.hasScopes.load(ordering: .relaxed) ? Self.scope : nil
        // A computed timeout may be negative if the time has already passed. It is treated as zero.
        guard let timeout, let end = Deadline(after: max(timeout.inSeconds, 0)) else { return }
        if let deadline, deadline <= end { return }
        (deadline, self.timeout) = (end, max(timeout.inSeconds, 0))
    }

    /// The time limit for the operation in seconds. A negative value means no limit.
    var secondsLeft: Double {
        guard let deadline else { return -1 }
        return timeout ?? max(deadline.seconds(since: .now), 0)
    }

    /// Whether the current task may still start an operation.
    var isOpen: Bool {
        if let deadline, deadline <= .now { return false }
        return !Task.isCancelled
    }

    func check(_ operation: AsyncSocketError.Operation, isCancelled: Bool = Task.isCancelled) throws {
        if isCancelled { throw CancellationError() }
        if let deadline, deadline <= .now { throw error(of: operation) }
    }

    func error(of operation: AsyncSocketError.Operation) -> AsyncSocketError {
        guard let timeout else {
            return AsyncSocketError(
                .deadlineExceeded, fault: .peer, operation: operation, message: "the deadline of withDeadline expired")
        }
        return .timeout(operation.timeoutCode, operation, seconds: timeout)
    }
}

/// Calls `body` with a deadline for all socket operations inside it.
///
/// An operation that does not complete in time throws an `AsyncSocketError` with the code
/// `.deadlineExceeded`, and so does every later operation. As with cancellation, the bytes collected by an
/// incomplete read stay available for the next read. Deadlines can be nested; the earliest deadline applies.
/// Tasks that `body` starts inherit the deadline, except detached tasks. Only socket operations are
/// interrupted. Other libraries do not observe the deadline.
///
/// ```swift
/// let greeting = try await withDeadline(.seconds(10)) {
///     try await socket.connect(to: "mail.example.org", port: 587)
///     return try await socket.readLine()
/// }
/// ```
///
/// - Parameters:
///   - duration: The time until the deadline, starting now. A negative duration means that the deadline has
///     already passed.
///   - body: Runs in the current task, on the caller's actor or executor.
/// - Returns: The value that `body` returns.
/// - Throws: The errors of `body`.
public nonisolated(nonsending) func withDeadline<Result>(
    _ duration: Duration, _ body: nonisolated(nonsending) () async throws -> Result
) async rethrows -> Result {
    try await OperationLimit.within(Deadline(after: max(duration.inSeconds, 0)), body)
}

extension OperationLimit {
    /// Calls `body` on the caller's actor. A closure runs there only if it captures the isolation.
    fileprivate static func within<Result>(
        _ deadline: Deadline?, isolation: isolated (any Actor)? = #isolation,
        _ body: nonisolated(nonsending) () async throws -> Result
    ) async rethrows -> Result {
        hasScopes.store(true, ordering: .relaxed)
        return try await $scope.withValue(
            .earlier(scope, deadline),
            operation: {
                _ = isolation
                return try await body()
            }, isolation: isolation)
    }
}

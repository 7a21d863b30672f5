internal import SocketBuffers
internal import SocketCore

/// What a task waits for.
enum OperationKind: String, Sendable {
    case connect, read, write, startTLS, close, requestClientCertificate
}

/// When an operation of a task has to be complete: by its own timeout or by the `withDeadline` around it,
/// whichever comes first.
struct OperationLimit: Sendable {
    /// Nil: never.
    private(set) var deadline: Deadline?
    private var isTimeout = false

    @TaskLocal fileprivate static var scope: Deadline?

    /// No more than `timeout` from now, and no longer than the task's deadline.
    init(_ timeout: Duration?) {
        deadline = Self.scope
        // A time that has passed already is no time: a computed one may be below zero.
        guard let timeout, let end = Deadline(after: max(timeout.inSeconds, 0)) else { return }
        if let deadline, deadline <= end { return }
        (deadline, isTimeout) = (end, true)
    }

    /// Throws when the task is cancelled, or the time is over already.
    func check(_ operation: OperationKind, isCancelled: Bool = Task.isCancelled) throws {
        if isCancelled { throw CancellationError() }
        if let deadline, deadline <= .now { throw error(of: operation) }
    }

    /// Why an operation that has not been complete in time fails.
    func error(of operation: OperationKind) -> AsyncSocketError {
        guard isTimeout else {
            return AsyncSocketError(
                .deadlineExceeded, blame: .peer, operation: operation.rawValue, message: "the deadline around it has passed")
        }
        let code: AsyncSocketError.Code =
            switch operation {
            case .connect: .connectTimeout
            case .read: .readTimeout
            case .write, .close: .writeTimeout
            case .startTLS, .requestClientCertificate: .handshakeTimeout
            }
        return AsyncSocketError(
            code, blame: .peer, operation: operation.rawValue, message: "it did not complete in time")
    }
}

/// Calls `body`; every operation of a socket in it has to be complete before the deadline.
///
/// An operation that is not complete then throws an `AsyncSocketError` with the code `.deadlineExceeded`,
/// and so does every later one. What it had collected stays for the next reader, as with a cancellation.
/// Deadlines nest: the earliest counts. Tasks that `body` starts have the deadline too, except detached
/// ones. Nothing else is interrupted: other libraries do not know the deadline.
///
/// ```swift
/// let greeting = try await withDeadline(.seconds(10)) {
///     try await socket.connect(to: "mail.example.org", port: 587)
///     return try await socket.readLine()
/// }
/// ```
///
/// - Parameters:
///   - duration: The time from now on. Less than zero: none is left.
///   - body: Runs in this task, where the caller runs.
/// - Returns: What `body` returns.
/// - Throws: What `body` throws.
public nonisolated(nonsending) func withDeadline<Result>(
    _ duration: Duration, _ body: nonisolated(nonsending) () async throws -> Result
) async rethrows -> Result {
    try await OperationLimit.within(Deadline(after: max(duration.inSeconds, 0)), body)
}

extension OperationLimit {
    /// Calls `body` where the caller runs. A closure does so only if it captures the isolation: without it
    /// the body would run beside the caller's actor.
    fileprivate static func within<Result>(
        _ deadline: Deadline?, isolation: isolated (any Actor)? = #isolation,
        _ body: nonisolated(nonsending) () async throws -> Result
    ) async rethrows -> Result {
        try await $scope.withValue(
            .earlier(scope, deadline),
            operation: {
                _ = isolation
                return try await body()
            }, isolation: isolation)
    }
}

internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The operation that a task waits for.
enum OperationKind: String, Sendable {
    case connect, read, write, startTLS, close, requestClientCertificate, send, receive
}

/// When an operation of a task has to be complete: by its own timeout or by the `withDeadline` around it,
/// whichever comes first.
struct OperationLimit: Sendable {
    /// Nil: never.
    private(set) var deadline: Deadline?
    /// In seconds; nil: the deadline is the scope's.
    private var timeout: Double?

    @TaskLocal fileprivate static var scope: Deadline?
    /// `withDeadline` has been called. To look for a task's deadline takes 90 instructions, and many programs
    /// have none.
    fileprivate static let hasScopes = Atomic(false)

    /// No more than `timeout` from now, and no longer than the task's deadline.
    init(_ timeout: Duration?) {
        deadline = Self.hasScopes.load(ordering: .relaxed) ? Self.scope : nil
        // A time that has passed already counts as zero: a computed one may be below zero.
        guard let timeout, let end = Deadline(after: max(timeout.inSeconds, 0)) else { return }
        if let deadline, deadline <= end { return }
        (deadline, self.timeout) = (end, max(timeout.inSeconds, 0))
    }

    /// The seconds that are left; negative: no limit.
    var secondsLeft: Double {
        guard let deadline else { return -1 }
        return timeout ?? max(deadline.seconds(since: .now), 0)
    }

    /// Throws when the task is cancelled, or the time is over already.
    func check(_ operation: OperationKind, isCancelled: Bool = Task.isCancelled) throws {
        if isCancelled { throw CancellationError() }
        if let deadline, deadline <= .now { throw error(of: operation) }
    }

    /// Why an operation that has not been complete in time fails.
    func error(of operation: OperationKind) -> AsyncSocketError {
        guard let timeout else {
            return AsyncSocketError(
                .deadlineExceeded, blame: .peer, operation: operation.rawValue, message: "the deadline of withDeadline has passed"
            )
        }
        let code: AsyncSocketError.Code =
            switch operation {
            case .connect: .connectTimeout
            case .read, .receive: .readTimeout
            case .write, .close, .send: .writeTimeout
            case .startTLS, .requestClientCertificate: .handshakeTimeout
            }
        return .timeout(code, operation.rawValue, seconds: timeout)
    }
}

/// Calls `body`; every operation of a socket in it has to be complete before the deadline.
///
/// An operation that is not complete then throws an `AsyncSocketError` with the code `.deadlineExceeded`,
/// and so does every later one. Bytes that it had collected stay for the next reader, as with a cancellation.
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
        hasScopes.store(true, ordering: .relaxed)
        return try await $scope.withValue(
            .earlier(scope, deadline),
            operation: {
                _ = isolation
                return try await body()
            }, isolation: isolation)
    }
}

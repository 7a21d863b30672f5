internal import SocketCore

/// The executor that runs a connection's task.
public struct ConnectionExecutor: Sendable {
    private let chosen: (any TaskExecutor)?

    /// The event loop that serves the connection, which avoids a thread switch for each read and write.
    ///
    /// Code on an event loop must not block or compute for long between two socket operations, because it
    /// delays all other connections on that loop. If a task blocks its loop for a second, a warning with the
    /// connection's name is logged.
    public static let eventLoop = ConnectionExecutor(chosen: nil)

    /// Returns an executor setting for your own task executor.
    public static func custom(_ executor: any TaskExecutor) -> ConnectionExecutor {
        ConnectionExecutor(chosen: executor)
    }

    func taskExecutor(for socket: AsyncSocket) -> (any TaskExecutor)? {
        chosen ?? socket.executor
    }

    func taskExecutor(for loop: SocketEventLoop) -> any TaskExecutor {
        chosen ?? loop
    }

    /// Runs `body` on an executor. If an actor calls this, `body` stays on that actor, because it may use
    /// the actor's state. The closure therefore captures the isolation.
    static func run<Result>(
        on executor: any TaskExecutor, isolation: isolated (any Actor)? = #isolation,
        _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        try await withTaskExecutorPreference(executor, isolation: isolation) {
            _ = isolation
            // A preference takes effect at the next suspension point, and there may not have been a
            // suspension yet.
            if (executor as? SocketEventLoop)?.isCurrent != true { await Task.yield() }
            return try await body()
        }
    }
}

extension SocketEventLoop {
    /// Returns `next()`, and converts its error to an `AsyncSocketError` for `operation`.
    static func next(for operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> SocketEventLoop {
        do throws(SystemError) {
            return try next()
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}

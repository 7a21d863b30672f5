public import SocketCore

/// Where the task of a connection runs.
public struct ConnectionExecutor: Sendable {
    private let chosen: (any TaskExecutor)?

    /// The event loop that serves the connection: no change of thread for each read and write. Code that runs
    /// there must not block or compute for long between two operations of a socket, since other connections
    /// wait meanwhile; the log names a connection whose task holds its loop for a second.
    public static let eventLoop = ConnectionExecutor(chosen: nil)

    /// An executor of your own.
    public static func custom(_ executor: any TaskExecutor) -> ConnectionExecutor {
        ConnectionExecutor(chosen: executor)
    }

    func taskExecutor(for socket: AsyncSocket) -> (any TaskExecutor)? {
        chosen ?? socket.executor
    }

    /// For a connection that `loop` will serve.
    func taskExecutor(for loop: EventLoop) -> any TaskExecutor {
        chosen ?? loop
    }

    /// Runs `body` on an executor. An actor that calls this keeps `body`, which may use its state: hence the
    /// isolation in the closure.
    static func run<Result>(
        on executor: any TaskExecutor, isolation: isolated (any Actor)? = #isolation,
        _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        try await withTaskExecutorPreference(executor, isolation: isolation) {
            _ = isolation
            // A preference counts from the next suspension on, and so far there need not have been one.
            if (executor as? EventLoop)?.isCurrent != true { await Task.yield() }
            return try await body()
        }
    }
}

extension AsyncSocket {
    /// The event loop of the socket, for other tasks that serve it:
    /// `Task(executorPreference: socket.executor) { … }`. Nil, which means no preference, only when the
    /// process has no descriptors left for a loop.
    ///
    /// A socket stays on its loop. See `ConnectionExecutor.eventLoop` for what may run there.
    public var executor: EventLoop? {
        try? chooseLoop("executor")
    }
}

extension EventLoop {
    /// The same as `next()`, with the error of an operation that needs a loop.
    static func next(for operation: String) throws(AsyncSocketError) -> EventLoop {
        do throws(SystemError) {
            return try next()
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}

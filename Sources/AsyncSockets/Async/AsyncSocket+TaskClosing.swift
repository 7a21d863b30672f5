internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Closes the connection after all queued writes are complete.
    ///
    /// Returns when the connection is closed. The peer receives a FIN, preceded by a close_notify on a
    /// secure connection. Pending reads throw `.closed`. If the task is cancelled, the connection closes
    /// immediately, without a close_notify if queued bytes are dropped. The call has no effect on a socket
    /// that is not in use. A socket that is still connecting is closed immediately. With a
    /// `writeHighWaterMark`, bytes may still be queued after their `write` has returned.
    ///
    /// - Parameter timeout: How long the writes may take. After that they fail, and the connection closes as
    ///   if the task had been cancelled.
    /// - Throws: The reason queued bytes were dropped: `.writeTimeout` after `timeout`, the error of the
    ///   connection, or `CancellationError` if the task is cancelled.
    public nonisolated(nonsending) func close(timeout: Duration = .seconds(30)) async throws {
        try await finish(timeout: timeout, countsRefusedWrites: true)
    }

    /// Implements `close(timeout:)`.
    ///
    /// - Parameter countsRefusedWrites: Whether to throw even if every dropped write already threw its own
    ///   error.
    nonisolated(nonsending) func finish(timeout: Duration = .seconds(30), countsRefusedWrites: Bool = false) async throws {
        guard let connection else { return disconnect() }
        if isConnected { disconnectAfterWriting() } else { disconnect() }
        var cancellation: CancellationError?
        // If no writes were queued, the connection is usually closed by now.
        if !connection.record.withLock({ $0.snapshot.hasEnded }) {
            let waiter = DoneWaiter(.close, OperationLimit(timeout))
            connection.post(.awaitEnd(waiter))
            // After a timeout or a cancellation the connection is already closed.
            do { try await waiter.value(from: connection) } catch { cancellation = error as? CancellationError }
        }
        guard let lost = connection.record.withLock({ $0.snapshot.loss?.value.writes }) else { return }
        if countsRefusedWrites, let cancellation { throw cancellation }
        if countsRefusedWrites || lost.isAnswered { throw lost.error }
    }

    /// Calls `body`, and closes the connection however `body` exits.
    ///
    /// This is deliberately a single function without a generic result, which would add two frames. The task
    /// keeps the frame of every function on its call stack while `body` runs.
    func closing(
        isolation: isolated (any Actor)? = #isolation, after body: nonisolated(nonsending) (AsyncSocket) async throws -> Void
    ) async throws {
        let connection = connection
        // `nil` if the connection already belongs to another task. Each read then installs its own
        // cancellation handler.
        var waiter = connection?.scope.begin()
        do {
            try await withTaskCancellationHandler(
                operation: {
                    // Without this capture, the body would run outside the caller's actor.
                    _ = isolation
                    try await body(self)
                },
                onCancel: { [waiter] in
                    guard let waiter else { return }
                    waiter.cancel()
                    connection?.post(.cancel(waiter))
                }, isolation: isolation)
            if waiter != nil { connection?.scope.end() }
            waiter = nil
            try await finish()
        } catch {
            if waiter != nil { connection?.scope.end() }
            disconnect(.abandoned)
            throw error
        }
    }

    /// Calls `body`, closes the connection however `body` exits, and returns the value of `body`.
    func closing<Result>(
        isolation: isolated (any Actor)? = #isolation,
        returning body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        var result: Result?
        try await closing(isolation: isolation, after: { result = try await body($0) })
        // Without an error, `body` has returned.
        guard let result else { throw CancellationError() }
        return result
    }
}

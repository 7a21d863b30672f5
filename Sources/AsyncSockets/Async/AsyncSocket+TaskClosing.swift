internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Closes the connection in order: once the writes that were asked for are complete.
    ///
    /// Returns when the connection has ended. The peer gets a FIN and, on a secure connection, a close_notify
    /// before it. Reads that wait throw `.closed`. When the task is cancelled, the connection closes
    /// immediately, without a close_notify if bytes wait to be sent. It does nothing on a socket that is not
    /// in use, and closes one that is still connecting at once. With a `writeHighWaterMark`, bytes may wait
    /// whose `write` has returned.
    ///
    /// - Parameter timeout: How long the writes may take. After that they fail, and the connection closes as
    ///   if the task had been cancelled.
    /// - Throws: Why bytes were given up that had been written: `.writeTimeout` after `timeout`, the error of
    ///   the connection, or `CancellationError` when the task is cancelled.
    public nonisolated(nonsending) func close(timeout: Duration = .seconds(30)) async throws {
        try await finish(timeout: timeout, countsRefusedWrites: true)
    }

    /// The same.
    ///
    /// - Parameter countsRefusedWrites: Bytes count as given up although their `write` has thrown.
    nonisolated(nonsending) func finish(timeout: Duration = .seconds(30), countsRefusedWrites: Bool = false) async throws {
        guard let connection else { return disconnect() }
        if isConnected { disconnectAfterWriting() } else { disconnect() }
        let waiter = DoneWaiter(.close, OperationLimit(timeout))
        connection.post(.awaitEnd(waiter))
        var cancellation: CancellationError?
        // Late or cancelled: it has closed at once.
        do { try await waiter.value(from: connection) } catch { cancellation = error as? CancellationError }
        guard let lost = connection.record.withLock({ $0.snapshot.loss?.value.writes }) else { return }
        if countsRefusedWrites, let cancellation { throw cancellation }
        if countsRefusedWrites || lost.isAnswered { throw lost.error }
    }

    /// Calls `body`, and closes the connection on every way out.
    ///
    /// One function, and not several: what a task keeps for each of them stays as long as `body` runs.
    func closing<Result>(
        isolation: isolated (any Actor)? = #isolation,
        after body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        let connection = connection
        // Nil when the connection belongs to another task already: then each read has a handler of its own.
        var waiter = connection?.scope.begin()
        do {
            let result = try await withTaskCancellationHandler(
                operation: {
                    // Without it the body would run beside the caller's actor.
                    _ = isolation
                    return try await body(self)
                },
                onCancel: { [waiter] in
                    guard let waiter else { return }
                    waiter.cancel()
                    connection?.post(.cancel(waiter))
                }, isolation: isolation)
            if waiter != nil { connection?.scope.end() }
            waiter = nil
            try await finish()
            return result
        } catch {
            if waiter != nil { connection?.scope.end() }
            disconnect(.abandoned)
            throw error
        }
    }
}

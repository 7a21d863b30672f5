internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Closes the connection in order: once the writes that were asked for are complete.
    ///
    /// Returns when the connection has ended. The peer gets a FIN and, on a secure connection, a close_notify
    /// before it. Reads that wait throw `.closed`. A cancelled task closes at once, as `disconnect()` does.
    /// It does nothing on a socket that is not in use, and closes one that is still connecting at once.
    ///
    /// With a `writeHighWaterMark`, bytes whose `write` has returned may be lost here without a word; at the
    /// end of `withConnection` and of a listener's connection that is an error.
    ///
    /// - Parameter timeout: How long the writes may take; then the connection closes at once, and they fail.
    public nonisolated(nonsending) func close(timeout: Duration = .seconds(30)) async {
        try? await finish(timeout: timeout)
    }

    /// The same. Throws when bytes were not sent whose `write` had returned before.
    nonisolated(nonsending) func finish(timeout: Duration = .seconds(30)) async throws {
        guard let connection else { return disconnect() }
        if isConnected {
            disconnectAfterWriting()
            let waiter = DoneWaiter(.close, OperationLimit(timeout))
            connection.post(.awaitEnd(waiter))
            // Late or cancelled: it has closed at once.
            try? await waiter.value(from: connection)
        } else {
            disconnect()
        }
        if let error = connection.record.withLock({ $0.snapshot.lostWrites }) { throw error }
    }
}

extension StreamConnection {
    /// Gives up the writes that wait. Those that have been answered are remembered, since no one hears of
    /// them.
    func dropWrites() {
        var hasLostWrites = false
        while let completion = writes.drop() {
            if case .answered = completion { hasLostWrites = true }
            refuse(completion)
        }
        if hasLostWrites { record.withLock { $0.snapshot.lostWrites = lostWritesError } }
    }

    private var lostWritesError: AsyncSocketError {
        if case .closed(let error?) = phase { return error }
        return AsyncSocketError(
            .writeTimeout, blame: .peer, operation: "write",
            message: "the connection was closed before all that was written had been sent")
    }
}

internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Closes the connection in order: once the writes that were asked for are complete.
    ///
    /// Returns when the connection has ended. The peer gets a FIN and, on a secure connection, a close_notify
    /// before it. Reads that wait throw `.badConfiguration`. A cancelled task closes at once, as
    /// `disconnect()` does. It does nothing on a socket that is not in use, and closes one that is still
    /// connecting at once.
    ///
    /// - Parameter timeout: How long the writes may take; then the connection closes at once, and they fail.
    public nonisolated(nonsending) func close(timeout: Duration = .seconds(30)) async {
        guard let connection else { return disconnect() }
        guard isConnected else { return disconnect() }
        disconnectAfterWriting()
        let waiter = DoneWaiter(.close, OperationLimit(timeout))
        connection.post(.awaitEnd(waiter))
        // Late or cancelled: it has closed at once.
        try? await waiter.value(from: connection)
    }
}

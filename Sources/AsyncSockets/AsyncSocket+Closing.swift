internal import SocketBuffers

extension AsyncSocket {
    /// Ends the connection, the attempt to make one, or the listening, at once.
    ///
    /// Queued reads and writes are dropped; a secure connection gets its close_notify. `socketDidDisconnect(_:withError:)` follows, with no error. On
    /// a socket that is not in use it does nothing.
    public func disconnect() {
        state.withLock { $0.occupation }.close()
    }

    /// Ends the connection once the reads that are queued now are complete. Further reads and writes are not taken.
    public func disconnectAfterReading() {
        connection?.post(.close(.afterReads))
    }

    /// Ends the connection once the writes that are queued now are complete. Further reads and writes are not taken.
    public func disconnectAfterWriting() {
        connection?.post(.close(.afterWrites))
    }

    /// Ends the connection once the reads and writes that are queued now are complete. Further ones are not taken.
    public func disconnectAfterReadingAndWriting() {
        connection?.post(.close([.afterReads, .afterWrites]))
    }
}

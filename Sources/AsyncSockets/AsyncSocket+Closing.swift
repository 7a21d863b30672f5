internal import SocketBuffers

extension AsyncSocket {
    /// Ends the connection, the attempt to connect, or the listener, at once.
    ///
    /// It drops the queued reads and writes; a secure connection sends close_notify, so the peer
    /// takes the bytes already sent for all of them.
    /// `socketDidDisconnect(_:withError:)` follows, without an error; tasks that wait get an
    /// `AsyncSocketError` with the code `.closed`. On a socket that is not in use it does nothing. You may
    /// connect the socket again at once: the old connection then delivers nothing but its end, and the new
    /// one nothing before that.
    public func disconnect() {
        disconnect([])
    }

    /// Ends the connection once the reads queued now are complete. Later reads and writes are dropped.
    ///
    /// The wait has no limit of its own: give the reads one. A read that is late ends the connection with its
    /// error.
    public func disconnectAfterReading() {
        disconnect(.afterReads)
    }

    /// Ends the connection once the writes queued now are complete. Later reads and writes are dropped.
    ///
    /// The wait has no limit of its own: give the writes one. A write that is late ends the connection with
    /// its error.
    public func disconnectAfterWriting() {
        disconnect(.afterWrites)
    }

    /// Ends the connection once the reads and writes queued now are complete. Later ones are dropped.
    ///
    /// The wait has no limit of its own: give the reads and writes one. One that is late ends the connection
    /// with its error.
    public func disconnectAfterReadingAndWriting() {
        disconnect([.afterReads, .afterWrites])
    }

    /// Ends the connection at once with an error of the caller's, as bad settings do. For the drop-in module,
    /// whose settings are not the library's.
    package func fail(_ error: AsyncSocketError) {
        connection?.post(.fail(error))
    }

    func disconnect(_ intent: CloseIntent) {
        let occupation = state.withLock { $0.occupation }
        switch occupation {
        case .nothing: break
        case .listening(let listener, let outlet): if intent.isAtOnce, listener.close() { sendEnd(of: listener, outlet) }
        case .connection(let connection):
            connection.record.withLock { $0.claims.close(intent) }
            occupation.close(intent)
        }
    }

    /// Closes our side of the connection once the writes that are queued now are complete; reading goes on.
    ///
    /// The peer gets a FIN (shutdown(2) with `SHUT_WR`) and, on a secure connection, a close_notify before it
    /// (RFC 8446, 6.1). Later writes are dropped. The connection ends when the peer closes its side too, or
    /// with one of the `disconnect` methods. A peer that speaks TLS 1.2 may answer a close_notify by closing
    /// at once (RFC 5246, 7.2.1).
    ///
    /// Neither the wait for the writes nor the wait for the peer has a limit of its own: give the writes one,
    /// and read to the end with one (`readDataToEnd(withTimeout:maxLength:tag:)`).
    public func closeWriteStream() {
        guard let connection else { return }
        connection.record.withLock { $0.claims.isWriteStreamClosing = true }
        connection.post(.closeWriteStream)
    }
}

internal import SocketBuffers

extension AsyncSocket {
    /// Closes the connection, the connection attempt or the listener immediately.
    ///
    /// Queued reads and writes are dropped. A secure connection sends close_notify, so to the peer the bytes
    /// already sent look like the complete stream. `socketDidDisconnect(_:withError:)` follows without an
    /// error, and suspended tasks throw an `AsyncSocketError` with the code `.closed`. If the socket is not
    /// in use, the call has no effect. You may connect the socket again immediately: the old connection then
    /// delivers only its `socketDidDisconnect(_:withError:)`, and the new connection delivers no event before
    /// that.
    public func disconnect() {
        disconnect([])
    }

    /// Closes the connection once the currently queued reads are complete. Later reads and writes are
    /// dropped.
    ///
    /// The delay has no time limit unless the reads have timeouts. A read that times out closes the
    /// connection with its error. A listener closes immediately.
    public func disconnectAfterReading() {
        disconnect(.afterReads)
    }

    /// Closes the connection once the currently queued writes are complete. Later reads and writes are
    /// dropped.
    ///
    /// The delay has no time limit unless the writes have timeouts. A write that times out closes the
    /// connection with its error. A listener closes immediately.
    public func disconnectAfterWriting() {
        disconnect(.afterWrites)
    }

    /// Closes the connection once the currently queued reads and writes are complete. Later reads and writes
    /// are dropped.
    ///
    /// The delay has no time limit unless the reads and writes have timeouts. A read or write that times out
    /// closes the connection with its error. A listener closes immediately.
    public func disconnectAfterReadingAndWriting() {
        disconnect([.afterReads, .afterWrites])
    }

    /// Closes the connection immediately with a reset, so that the peer does not mistake the end for the end
    /// of the data.
    ///
    /// Like `disconnect()`, this drops queued reads and writes, and `socketDidDisconnect(_:withError:)`
    /// follows without an error. Unlike `disconnect()`, it sends no close_notify and no FIN, and the kernel
    /// drops unsent bytes. The peer's reads fail with `ECONNRESET`.
    ///
    /// Unix-domain sockets cannot be reset. Over such a socket, a peer with TLS detects a truncation, but a
    /// peer without TLS reads the end of the stream. Connection attempts and listeners close as with
    /// `disconnect()`.
    public func disconnectWithReset() {
        disconnect(.reset)
    }

    /// Closes the connection immediately with an error supplied by the caller, for example because TLS
    /// settings are unusable. Used by the `CocoaAsyncSocket` module, which has its own form of TLS settings.
    package func fail(_ error: AsyncSocketError) {
        connection?.post(.fail(error))
    }

    func disconnect(_ intent: CloseIntent) {
        let occupation = state.withLock { $0.occupation }
        switch occupation {
        case .nothing: break
        // A listener has no reads and writes to complete.
        case .listening(let listener, let outlet): if listener.close() { sendEnd(of: listener, outlet) }
        case .connection(let connection):
            connection.record.withLock { $0.claims.close(intent) }
            occupation.close(intent)
        }
    }

    /// Closes this side of the connection once the currently queued writes are complete. Reading continues.
    ///
    /// The peer receives a FIN (shutdown(2) with `SHUT_WR`), preceded by a close_notify on a secure
    /// connection (RFC 8446, section 6.1). Later writes are dropped. The connection closes when the peer
    /// closes its side too, or when you call one of the `disconnect` methods. A peer that uses TLS 1.2 may
    /// respond to a close_notify by closing the connection immediately (RFC 5246, section 7.2.1).
    ///
    /// Neither the delay for the writes nor the wait for the peer is limited: give the writes a timeout, and
    /// read to the end with a timeout (`readDataToEnd(withTimeout:maxLength:tag:)`).
    public func closeWriteStream() {
        guard let connection else { return }
        connection.record.withLock { $0.claims.isWriteStreamClosing = true }
        connection.post(.closeWriteStream)
    }
}

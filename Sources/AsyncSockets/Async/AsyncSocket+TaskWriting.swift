public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

// Writes for tasks. Writes are sent in the order in which they were requested.
extension AsyncSocket {
    /// Writes all of `data`.
    ///
    /// Returns when the kernel has accepted the bytes or, with a `writeHighWaterMark`, when fewer bytes than
    /// the mark are queued in this process. A task therefore cannot write faster than the peer reads. If the
    /// kernel has room, this returns immediately, usually without suspending. An error that affects bytes
    /// still queued is thrown by a later operation, or at the end of `withConnection`.
    ///
    /// On the socket's event loop, writes are coalesced while received bytes are still unread, so that the
    /// responses to messages that arrived together are sent together. If a task writes repeatedly without
    /// suspending, its later writes of less than 4 KiB are coalesced as well. Such a write returns before the
    /// kernel has the bytes. They are sent with the response to the last message, when the task suspends,
    /// when 64 KiB are collected, or when the task calls `flush()`. If the kernel then does not accept them
    /// within the `timeout` of the write, the connection fails with `.writeTimeout`.
    ///
    /// - Parameters:
    ///   - data: The bytes. Empty data is not written.
    ///   - timeout: The time limit for the write, starting now. `nil` means no limit. A write that exceeds
    ///     the limit throws `.writeTimeout`.
    /// - Throws: `CancellationError` if the task is cancelled. A write that is cancelled or times out before
    ///   it has started is removed. A partially sent write continues in the background, so that the stream
    ///   stays intact. Otherwise an `AsyncSocketError`: `.closed` if this side closes the connection,
    ///   `.badConfiguration` if the socket was never in use, `.deadlineExceeded` if a `withDeadline(_:_:)`
    ///   expires, or the reason the connection failed.
    @inlinable
    public nonisolated(nonsending) func write(_ data: Data, timeout: Duration? = nil) async throws {
        if let pending = try PendingWrite.start(on: self, data, timeout) { try await pending.finish() }
    }

    /// Writes all of `bytes`. See `write(_:timeout:)` for `Data`. Only bytes that must be queued are copied.
    @inlinable
    public nonisolated(nonsending) func write(_ bytes: [UInt8], timeout: Duration? = nil) async throws {
        let pending = try bytes.withUnsafeBytes { try PendingWrite.start(on: self, copying: $0, timeout) }
        if let pending { try await pending.finish() }
    }

    /// Writes a string as UTF-8. See `write(_:timeout:)` for `Data`.
    @inlinable
    public nonisolated(nonsending) func write(_ text: String, timeout: Duration? = nil) async throws {
        if let pending = try PendingWrite.start(on: self, text, timeout) { try await pending.finish() }
    }

    /// Writes a line of text as UTF-8, followed by a line terminator.
    ///
    /// - Parameters:
    ///   - line: The line. A line that contains a carriage return or a line feed is rejected, because
    ///     untrusted text could otherwise inject a second line, such as a protocol command.
    ///   - end: The line terminator. The default is CR LF, as in most protocols.
    ///   - timeout: See `write(_:timeout:)`.
    /// - Throws: `.badParameter` if the line contains a carriage return or a line feed, and the errors of
    ///   `write(_:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func writeLine(
        _ line: String, endingWith end: String = "\r\n", timeout: Duration? = nil
    ) async throws {
        let pending = try PendingWrite.start(on: self, line: line, endingWith: end, timeout)
        if let pending { try await pending.finish() }
    }

    /// Writes a PROXY protocol header, for programs that forward connections.
    ///
    /// Write the header before anything else on the connection, including TLS.
    ///
    /// ```swift
    /// try await upstream.connect(to: "127.0.0.1", port: 8443)
    /// try await upstream.write(ProxyHeader(source: client, destination: local))
    /// try await upstream.startTLS(settings: .client(serverName: "backend.example"))
    /// ```
    ///
    /// - Parameters:
    ///   - header: The client's address and the address that the client connected to.
    ///   - version: The protocol version that the receiver expects, 2 by default.
    ///   - timeout: See `write(_:timeout:)`.
    /// - Throws: A `ProxyHeaderError` if the header cannot be represented in that version, and the errors of
    ///   `write(_:timeout:)`.
    public nonisolated(nonsending) func write(
        _ header: ProxyHeader, as version: ProxyHeader.Version = .version2, timeout: Duration? = nil
    ) async throws {
        try await write(header.encoded(as: version), timeout: timeout)
    }

    /// Writes part of a file.
    ///
    /// Returns when the kernel has accepted the bytes. See
    /// `write(contentsOfFile:offset:length:withTimeout:tag:)` for how the file is sent, and for what happens
    /// if it becomes shorter while it is being sent.
    ///
    /// - Parameters:
    ///   - path: The path of a regular file.
    ///   - offset: The offset of the first byte to send.
    ///   - length: The number of bytes. `nil` means up to the current end of the file.
    ///   - timeout: See `write(_:timeout:)`.
    ///   - progress: Called ten times per second while the file is being sent, even if no bytes move, and
    ///     once more on completion. It is called at least once, even for an empty file. It runs in the
    ///     calling task, on the caller's actor, so it can use that actor's state. The transfer does not wait
    ///     for it.
    /// - Throws: The errors of `write(_:timeout:)`, `.badParameter` if the file is not a regular file or
    ///   does not contain the requested part, and `.system` if the file cannot be opened. The message of a
    ///   later error includes the number of bytes sent.
    public nonisolated(nonsending) func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, timeout: Duration? = nil,
        progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        let (operations, limit) = try prepareWrite(timeout)
        let region = try Self.region(ofFile: path, offset: offset, length: length)
        let waiter = DoneWaiter(.write, limit)
        operations.write(WritePacket(file: region, timeout: -1, completion: .waiter(waiter)))
        var meter = TransferMeter(total: region.length)
        do {
            try await meter.reporting(to: progress, count: { region.handedOnCount }) {
                try await operations.finish(.waits(waiter))
            }
        } catch let error as AsyncSocketError {
            throw error.after(region.handedOnCount, of: region.length, path)
        }
    }

    // MARK: - Forwarding

    /// Forwards bytes between this connection and another in both directions, until both have ended.
    ///
    /// Returns when both peers have closed their sides in an orderly way and the kernel has everything. A
    /// peer that closes only its side keeps receiving: the end is forwarded as well, as a FIN or, with TLS, a
    /// close_notify. Each connection may use TLS. A connection is read only as fast as the other accepts the
    /// bytes, so a relay holds about 64 KiB for each direction, and a `writeHighWaterMark` in addition.
    ///
    /// If one connection fails or the task is cancelled, both are reset, so that neither peer takes the end
    /// for the end of the data. A failure is detected when the bytes received before it have been forwarded:
    /// if the other peer does not read, set an `idleTimeout` to end the relay.
    ///
    /// ```swift
    /// try await listener.run { client in
    ///     try await AsyncSocket.withConnection(to: "localhost", port: 8080) { backend in
    ///         _ = try await client.relay(with: backend, idleTimeout: .seconds(300))
    ///     }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - other: The other connection.
    ///   - idleTimeout: The relay fails if no byte is received or passed to the kernel on either connection
    ///     for that long. Bytes that the kernel still has to send do not count, so allow time for a slow
    ///     peer to receive up to a few megabytes. `nil` means no limit.
    ///   - onFailure: Called before this method throws because a connection has failed, with the error and
    ///     the connection that failed first. With `.idleTimeout`, both connections were idle. Not called if
    ///     the task is cancelled.
    /// - Returns: The number of bytes in each direction.
    /// - Throws: The reason the first connection failed: the errors of `read(maxLength:timeout:)` and
    ///   `write(_:timeout:)`, `.idleTimeout`, or `CancellationError`. `.badParameter` if `other` is this
    ///   socket. `.badConfiguration` if one of them is not in use or has `autoDisconnectOnClosedReadStream`
    ///   set, as sockets with a delegate do by default.
    @discardableResult
    public nonisolated(nonsending) func relay(
        with other: AsyncSocket, idleTimeout: Duration? = nil, onFailure: ((any Error, AsyncSocket) -> Void)? = nil
    ) async throws -> RelayTotals {
        guard other !== self else {
            throw AsyncSocketError.badParameter(.read, "a connection cannot be relayed to itself: pass another socket")
        }
        return try await Relay(self, other).run(idleTimeout, onFailure: onFailure)
    }

    // MARK: - Internal

    func prepareWrite(_ timeout: Duration?) throws -> (TaskOperations, OperationLimit) {
        let limit = OperationLimit(timeout)
        try limit.check(.write)
        guard let operations else { throw Self.notInUse(.write) }
        return (operations, limit)
    }
}

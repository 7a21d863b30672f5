public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Reads for tasks. Pending reads are served in the order in which they were requested.
extension AsyncSocket {
    /// Reads the bytes that are available. Returns `nil` after an orderly close (a FIN or, with TLS, a
    /// close_notify).
    ///
    /// If bytes are already available, this returns immediately, usually without suspending. On an event
    /// loop, a task yields to other work about once per millisecond.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum number of bytes to return, 64 KiB by default.
    ///   - timeout: The time limit for the read, starting now. `nil` means no limit. A read that exceeds the
    ///     limit throws `.readTimeout`. No bytes are lost, and the connection stays open.
    /// - Throws: `CancellationError` if the task is cancelled; no bytes are lost. Otherwise an
    ///   `AsyncSocketError`: `.closed` if this side has closed the connection, `.badConfiguration` if the
    ///   socket was never in use, `.badParameter` for a `maxLength` below 1, `.deadlineExceeded` if a
    ///   `withDeadline(_:_:)` expires, or the reason the connection failed.
    @inlinable
    public nonisolated(nonsending) func read(
        maxLength: Int = 65536, timeout: Duration? = nil
    ) async throws -> Data? {
        switch try StartedRead.start(on: self, maxLength: maxLength, timeout) {
        case .completed(let data): return data
        case .pending(let read): return try await read.valueBeforeEnd()
        }
    }

    /// Reads exactly `count` bytes.
    ///
    /// - Parameters:
    ///   - count: The number of bytes. With 0, the read returns no bytes once all earlier reads are
    ///     complete. Memory use grows with the received data and does not depend on this number.
    ///   - timeout: See `read(maxLength:timeout:)`.
    /// - Throws: The errors of `read(maxLength:timeout:)`, and `.closedByPeer` if the peer closes the
    ///   connection in an orderly way before `count` bytes have arrived. The bytes received so far can still
    ///   be read.
    @inlinable
    public nonisolated(nonsending) func read(exactly count: Int, timeout: Duration? = nil) async throws -> Data {
        switch try StartedRead.start(on: self, exactly: count, timeout) {
        case .completed(let data): return data
        case .pending(let read): return try await read.value()
        }
    }

    /// Returns the next `count` bytes without consuming them.
    ///
    /// With this, one port can serve several protocols: look at the first bytes, then call `startTLS` or read
    /// a request. The next read returns the same bytes, and a server's `startTLS` takes them as the start of
    /// the handshake.
    ///
    /// - Parameters:
    ///   - count: The number of bytes, from 1 to 65,536.
    ///   - timeout: See `read(maxLength:timeout:)`.
    /// - Throws: The errors of `read(exactly:timeout:)`, and `.badParameter` for another `count`.
    public nonisolated(nonsending) func peek(exactly count: Int, timeout: Duration? = nil) async throws -> Data {
        guard ReadHalf.peekLengths.contains(count) else { throw AsyncSocketError.badPeekLength(count) }
        return try await read(.peek(count), count, timeout)
    }

    /// Reads up to and including the first `delimiter`.
    ///
    /// - Parameters:
    ///   - delimiter: The bytes that complete the read, such as `AsyncSocket.crlf`.
    ///   - maxLength: The maximum number of bytes to return, 1 MiB by default. If that many bytes arrive
    ///     without a delimiter, the connection fails with `.readMaxedOut`.
    ///   - timeout: See `read(maxLength:timeout:)`.
    /// - Throws: The errors of `read(exactly:timeout:)`, and `.badParameter` if the delimiter is empty or
    ///   longer than `maxLength`.
    @inlinable
    public nonisolated(nonsending) func read(
        until delimiter: Data, maxLength: Int = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        switch try StartedRead.start(on: self, until: delimiter, maxLength: maxLength, timeout) {
        case .completed(let data): return data
        case .pending(let read): return try await read.value()
        }
    }

    /// Reads a line of text and removes the line feed and an optional preceding carriage return. Returns
    /// `nil` after an orderly close.
    ///
    /// The last bytes before an orderly close also form a line, even without a line feed. Invalid UTF-8 is
    /// replaced with U+FFFD. To read raw bytes, use `read(until:maxLength:timeout:)`.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum length of the line in bytes, including its terminator; 64 KiB by default.
    ///     A longer line makes the connection fail with `.readMaxedOut`.
    ///   - timeout: See `read(maxLength:timeout:)`.
    /// - Throws: The errors of `read(maxLength:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func readLine(
        maxLength: Int = 65536, timeout: Duration? = nil
    ) async throws -> String? {
        switch try StartedLine.start(on: self, maxLength: maxLength, timeout) {
        case .completed(let line): return line
        case .pending(let line): return try await line.value()
        }
    }

    /// Reads everything up to an orderly close.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum number of bytes to return, 1 MiB by default. If more bytes arrive, the
    ///     connection fails with `.readMaxedOut`.
    ///   - timeout: See `read(maxLength:timeout:)`.
    /// - Throws: The errors of `read(maxLength:timeout:)`, and `.truncated` if a TLS connection is closed
    ///   without a close_notify.
    public nonisolated(nonsending) func readToEnd(
        maxLength: Int = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        guard maxLength >= 0 else {
            throw AsyncSocketError.badParameter(.read, "maxLength must be at least 0, but is \(maxLength)")
        }
        do {
            return try await read(.end, maxLength, timeout)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The connection was closed before the read.
            return Data()
        }
    }

    /// Receives a file of `count` bytes.
    ///
    /// For protocols that announce the file's length. With 0, an empty file is created and no bytes are
    /// read. See `readToFile(_:maxLength:timeout:progress:)` for how the file is written.
    ///
    /// - Parameters:
    ///   - path: Where to write the file.
    ///   - count: The length of the file in bytes. Bytes that follow the file stay unread.
    ///   - timeout: The time limit for receiving the bytes, starting now. `nil` means no limit.
    ///   - progress: See `write(contentsOfFile:offset:length:timeout:progress:)`. The `total` of the
    ///     progress is `count`.
    /// - Throws: The errors of `readToFile(_:maxLength:timeout:progress:)`, and `.closedByPeer` if fewer
    ///   bytes arrive before an orderly close.
    public nonisolated(nonsending) func readToFile(
        _ path: String, exactly count: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        guard count >= 0 else {
            throw AsyncSocketError.badParameter(.readToFile, "count must be at least 0, but is \(count)")
        }
        guard let operations else { throw Self.notInUse(.readToFile) }
        _ = try await FileReception(operations, path, .exactly(count), OperationLimit(timeout)).run(progress)
    }

    /// Receives a file that extends to an orderly close of the connection.
    ///
    /// When the call returns, the file is complete and stored on disk. Until then, and after an error, an
    /// existing file at the path is left untouched, even if the machine crashes. The bytes are first written
    /// to a hidden file in the same folder, `.….part`, which is deleted unless the process is killed. An
    /// existing file or symbolic link at the path is replaced. At most 256 KiB are held in memory, and a slow
    /// disk slows the peer down. Disk I/O runs on another thread and never blocks the event loop.
    ///
    /// After an error or a cancellation the bytes received so far are lost, and the next unread bytes are
    /// from the middle of the file. Inform the peer if necessary, then close the connection.
    ///
    /// Without TLS, a crash of the peer cannot be distinguished from an orderly close. If your protocol
    /// announces the length of the file, use `readToFile(_:exactly:timeout:progress:)`, which detects
    /// missing bytes.
    ///
    /// - Parameters:
    ///   - path: Where to write the file.
    ///   - maxLength: The maximum length of the file in bytes. If more bytes arrive, the connection fails
    ///     with `.readMaxedOut`.
    ///   - timeout: The time limit for receiving the bytes, starting now. `nil` means no limit.
    ///   - progress: See `write(contentsOfFile:offset:length:timeout:progress:)`.
    /// - Returns: The length of the file in bytes.
    /// - Throws: The errors of `read(maxLength:timeout:)`, with the number of bytes received in the message;
    ///   `.truncated` if a TLS connection is closed without a close_notify; `.badParameter` if the path
    ///   refers to something other than a file, such as a folder or a device; `.system` if the file cannot be
    ///   created or written.
    @discardableResult
    public nonisolated(nonsending) func readToFile(
        _ path: String, maxLength: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws -> Int {
        guard maxLength >= 0 else {
            throw AsyncSocketError.badParameter(.readToFile, "maxLength must be at least 0, but is \(maxLength)")
        }
        guard let operations else { throw Self.notInUse(.readToFile) }
        let length = FileReception.Length.toEnd(maxLength: maxLength)
        return try await FileReception(operations, path, length, OperationLimit(timeout)).run(progress)
    }

    // MARK: - Internal

    /// Task operations on the current or most recent connection. `nil` if there has never been a connection.
    var operations: TaskOperations? { connection.map { TaskOperations(connection: $0) } }

    nonisolated(nonsending) func read(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: Duration?
    ) async throws -> Data {
        let limit = OperationLimit(timeout)
        guard let operations else { throw Self.notInUse(.read) }
        return try await operations.read(goal, maxLength, limit)
    }

    static func notInUse(_ operation: AsyncSocketError.Operation) -> AsyncSocketError {
        .badConfiguration(operation, "the socket is not in use: connect it first")
    }
}

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Reads for tasks. Those that wait are served in the order in which they were asked for.
extension AsyncSocket {
    /// The next bytes, as many as are there; nil after an orderly end (a FIN or, with TLS, a close_notify).
    ///
    /// Returns at once, mostly without a suspension, when bytes are there already: on an event loop a task
    /// lets others go first about once in a millisecond.
    ///
    /// - Parameters:
    ///   - maxLength: The most bytes to return; 64 KiB by default.
    ///   - timeout: The time that the read may take from now on; nil: no limit. A read that takes too long
    ///     throws `.readTimeout`, loses no byte, and leaves the connection alone.
    /// - Throws: `CancellationError` when the task is cancelled: no byte is lost. Otherwise an
    ///   `AsyncSocketError`: `.closed` when this side has closed the connection, `.badConfiguration` when the
    ///   socket was never in use, `.badParameter` for a `maxLength` below 1, `.deadlineExceeded` by
    ///   `withDeadline(_:_:)`, and why the connection has ended when it did not end in good order.
    public nonisolated(nonsending) func read(
        atMost maxLength: Int = 65536, timeout: Duration? = nil
    ) async throws -> Data? {
        try AsyncSocketError.checkMaxLength(maxLength)
        do {
            return try await read(.anyBytes, maxLength, timeout)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return nil
        }
    }

    /// Exactly `count` bytes.
    ///
    /// - Parameters:
    ///   - count: The number of bytes; 0 returns no bytes once the reads before it are complete. Memory grows
    ///     with what arrives, not with this number.
    ///   - timeout: As for `read(atMost:timeout:)`.
    /// - Throws: What `read(atMost:timeout:)` throws, and `.closedByPeer` when fewer bytes come before an
    ///   orderly end: they can still be read.
    public nonisolated(nonsending) func read(exactly count: Int, timeout: Duration? = nil) async throws -> Data {
        guard count >= 0 else { throw AsyncSocketError.badParameter("read", "count must be at least 0, and is \(count)") }
        return try await read(.length(count), count, timeout)
    }

    /// Everything up to and including the first `delimiter`.
    ///
    /// - Parameters:
    ///   - delimiter: The bytes that end the read, such as `AsyncSocket.crlf`.
    ///   - maxLength: The most bytes to return, 1 MiB by default. When as many come without a delimiter the
    ///     connection ends with `.readMaxedOut`.
    ///   - timeout: As for `read(atMost:timeout:)`.
    /// - Throws: What `read(exactly:timeout:)` throws, and `.badParameter` for an empty delimiter or one that
    ///   is longer than `maxLength`.
    public nonisolated(nonsending) func read(
        until delimiter: Data, maxLength: ByteLimit = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        guard !delimiter.isEmpty, delimiter.count <= maxLength.count else {
            throw AsyncSocketError.badParameter(
                "read",
                "the delimiter must have at least 1 byte and at most maxLength, which is \(maxLength), and has \(delimiter.count)"
            )
        }
        return try await read(.delimiter(delimiter), maxLength.count, timeout)
    }

    /// A line of text, without the line feed that ends it and without a carriage return before that; nil
    /// after an orderly end.
    ///
    /// The last bytes before an orderly end are a line too, even without a line feed. Invalid UTF-8 is
    /// repaired with U+FFFD: use `read(until:maxLength:timeout:)` for bytes.
    ///
    /// - Parameters:
    ///   - maxLength: The most bytes of the line with its end, 64 KiB by default. A longer line ends the
    ///     connection with `.readMaxedOut`.
    ///   - timeout: As for `read(atMost:timeout:)`.
    /// - Throws: What `read(atMost:timeout:)` throws.
    public nonisolated(nonsending) func readLine(
        maxLength: ByteLimit = 65536, timeout: Duration? = nil
    ) async throws -> String? {
        try AsyncSocketError.checkMaxLength(maxLength.count)
        guard let operations else { throw Self.notInUse("read") }
        return try await operations.readLine(LineReader(maxLength: maxLength.count), OperationLimit(timeout))
    }

    /// Everything up to an orderly end.
    ///
    /// - Parameters:
    ///   - maxLength: The most bytes to return, 1 MiB by default. When more come the connection ends with
    ///     `.readMaxedOut`.
    ///   - timeout: As for `read(atMost:timeout:)`.
    /// - Throws: What `read(atMost:timeout:)` throws. With TLS an end without close_notify is `.truncated`.
    public nonisolated(nonsending) func readToEnd(
        maxLength: ByteLimit = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        guard maxLength.count >= 0 else {
            throw AsyncSocketError.badParameter("read", "maxLength must be at least 0, and is \(maxLength.count)")
        }
        do {
            return try await read(.end, maxLength.count, timeout)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The end came before the read.
            return Data()
        }
    }

    /// Receives a file of `count` bytes: see `readToFile(_:maxLength:timeout:progress:)`.
    ///
    /// For a protocol that says how long the file is. With 0 the file is empty, and nothing is read.
    ///
    /// - Parameters:
    ///   - path: As for the other.
    ///   - count: The number of bytes of the file. The bytes behind them stay for the next read.
    ///   - timeout: As for the other.
    ///   - progress: As for the other; its `total` is `count`.
    /// - Throws: The errors of the other, and `.closedByPeer` when fewer bytes come before an orderly end.
    public nonisolated(nonsending) func readToFile(
        _ path: String, exactly count: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        guard count >= 0 else {
            throw AsyncSocketError.badParameter("readToFile", "count must be at least 0, and is \(count)")
        }
        guard let operations else { throw Self.notInUse("readToFile") }
        _ = try await FileReception(operations, path, .exactly(count), OperationLimit(timeout)).run(progress)
    }

    /// Receives a file: everything up to an orderly end.
    ///
    /// The file is there, with all its bytes and on the disk, when the call returns; before that, and after
    /// an error, its path has what it had before, even if the machine crashes. Meanwhile the bytes are in a
    /// hidden file in the same folder, `.….part`, which is deleted unless the process is killed. A file or
    /// symbolic link that is at the path is replaced. Memory holds 256 KiB at most, and a slow disk slows the
    /// peer down. The event loop does not wait for the disk: another thread does.
    ///
    /// After an error or a cancellation the bytes that had come are lost, and what follows is the middle of a
    /// file: close the connection, once you have told the peer.
    ///
    /// Without TLS the orderly end of a peer that has crashed is like any other. Where your protocol says how
    /// long the file is, `readToFile(_:exactly:timeout:progress:)` notices.
    ///
    /// - Parameters:
    ///   - path: Where to put the file.
    ///   - maxLength: The most bytes of the file. When more come the connection ends with `.readMaxedOut`.
    ///   - timeout: The time that the bytes may take to come, from now on; nil: no limit.
    ///   - progress: As for `write(contentsOfFile:offset:length:timeout:progress:)`.
    /// - Returns: The number of bytes.
    /// - Throws: The errors of `read(atMost:timeout:)`, with the number of bytes so far in the message;
    ///   `.badParameter` when the path leads to something other than a file, such as a folder or a device,
    ///   and `.system` when the file cannot be made or written. With TLS an end without close_notify is
    ///   `.truncated`.
    @discardableResult
    public nonisolated(nonsending) func readToFile(
        _ path: String, maxLength: ByteLimit, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws -> Int {
        guard maxLength.count >= 0 else {
            throw AsyncSocketError.badParameter("readToFile", "maxLength must be at least 0, and is \(maxLength.count)")
        }
        guard let operations else { throw Self.notInUse("readToFile") }
        let length = FileReception.Length.toEnd(maxLength: maxLength.count)
        return try await FileReception(operations, path, length, OperationLimit(timeout)).run(progress)
    }

    // MARK: - Inside

    /// The operations of tasks on its connection, while there is one or has been one.
    var operations: TaskOperations? { connection.map { TaskOperations(connection: $0) } }

    nonisolated(nonsending) func read(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: Duration?
    ) async throws -> Data {
        let limit = OperationLimit(timeout)
        guard let operations else { throw Self.notInUse("read") }
        return try await operations.read(goal, maxLength, limit)
    }

    static func notInUse(_ operation: String) -> AsyncSocketError {
        .badConfiguration(operation, "the socket is not in use: connect it first")
    }
}

public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

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
        guard count >= 0 else { throw AsyncSocketError.badParameter("read", "\(count) bytes are fewer than none") }
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
                "read", "a delimiter has at least one byte and at most maxLength, \(maxLength), and this one \(delimiter.count)")
        }
        return try await read(.delimiter(delimiter), maxLength.count, timeout)
    }

    /// A line of text, without the line feed that ends it and without a carriage return before that; nil
    /// after an orderly end.
    ///
    /// What comes before an orderly end without a line feed is a line too. Invalid UTF-8 is repaired with
    /// U+FFFD: use `read(until:maxLength:timeout:)` for bytes.
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
        guard let connection else { throw Self.notInUse("read") }
        return try await connection.readLine(LineReader(maxLength: maxLength.count), OperationLimit(timeout))
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
        guard maxLength.count >= 0 else { throw AsyncSocketError.badParameter("read", "maxLength must not be negative") }
        do {
            return try await read(.end, maxLength.count, timeout)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The end came before the read.
            return Data()
        }
    }

    // MARK: - Inside

    nonisolated(nonsending) func read(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: Duration?
    ) async throws -> Data {
        let limit = OperationLimit(timeout)
        guard let connection else { throw Self.notInUse("read") }
        return try await connection.read(goal, maxLength, limit)
    }

    static func notInUse(_ operation: String) -> AsyncSocketError {
        .badConfiguration(operation, "the socket is not in use: connect it first")
    }
}

public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

// Writes for tasks. They are sent in the order in which they were asked for.
extension AsyncSocket {
    /// Writes all of `data`.
    ///
    /// Returns when the kernel has the bytes; with a `writeHighWaterMark`, as soon as fewer bytes than that
    /// wait in this process. While the kernel has room it returns at once, mostly without a suspension. So a
    /// task cannot write faster than the peer reads. An error of bytes that wait is thrown by a later
    /// operation, or at the end of `withConnection`.
    ///
    /// On the event loop of the socket, and while bytes of the peer lie unread, a write returns before that:
    /// the answers to messages that came together leave together. They do so when the task has to wait, when
    /// they are 64 KiB, or when the task calls `flush()`. Bytes that then have to wait for the kernel longer
    /// than their `timeout` end the connection with `.writeTimeout`.
    ///
    /// - Parameters:
    ///   - data: The bytes. Nothing is written when there are none.
    ///   - timeout: The time that the write may take from now on; nil: no limit. A write that takes too long
    ///     throws `.writeTimeout`.
    /// - Throws: `CancellationError` when the task is cancelled. A write that has not begun when it is
    ///   cancelled, or late, is removed; one that has begun goes on, so that the stream stays whole.
    ///   Otherwise an `AsyncSocketError`: `.closed` when this side closes the connection, `.badConfiguration`
    ///   when the socket was never in use, `.deadlineExceeded` by `withDeadline(_:_:)`, and why the
    ///   connection has ended.
    public nonisolated(nonsending) func write(_ data: Data, timeout: Duration? = nil) async throws {
        let (connection, limit) = try prepareWrite(timeout)
        let answer = data.withUnsafeBytes { bytes in
            connection.beginWrite(bytes, limit) { $0 == 0 ? data : data.dropFirst($0) }
        }
        if answer.mustSuspend { try await connection.finish(answer) }
    }

    /// Writes all of `bytes`: see `write(_:timeout:)` for `Data`. They are copied only if they have to wait.
    public nonisolated(nonsending) func write(_ bytes: [UInt8], timeout: Duration? = nil) async throws {
        let (connection, limit) = try prepareWrite(timeout)
        let answer = bytes.withUnsafeBytes { connection.beginWrite(copying: $0, limit) }
        if answer.mustSuspend { try await connection.finish(answer) }
    }

    /// Writes a text as UTF-8: see `write(_:timeout:)` for `Data`.
    public nonisolated(nonsending) func write(_ text: String, timeout: Duration? = nil) async throws {
        let (connection, limit) = try prepareWrite(timeout)
        var text = text
        let answer = text.withUTF8 { connection.beginWrite(copying: UnsafeRawBufferPointer($0), limit) }
        if answer.mustSuspend { try await connection.finish(answer) }
    }

    /// Writes a line of text as UTF-8, and its end.
    ///
    /// - Parameters:
    ///   - line: The line. One with a carriage return or a line feed in it is refused: with text of a
    ///     stranger it would be two lines, and the second one the stranger's command.
    ///   - end: The bytes that end it: CR LF, as in most protocols, by default.
    ///   - timeout: As for `write(_:timeout:)`.
    /// - Throws: `.badParameter` for a line with an end in it, and otherwise what `write(_:timeout:)`
    ///   throws.
    public nonisolated(nonsending) func writeLine(
        _ line: String, endingWith end: String = "\r\n", timeout: Duration? = nil
    ) async throws {
        guard !line.utf8.contains(where: { $0 == 0x0A || $0 == 0x0D }) else {
            throw AsyncSocketError.badParameter("write", "the line contains a carriage return or a line feed")
        }
        try await write(line + end, timeout: timeout)
    }

    /// Writes a header of the PROXY protocol, for a program that passes connections on: before everything
    /// else, TLS included.
    ///
    /// ```swift
    /// try await upstream.connect(to: "127.0.0.1", port: 8443)
    /// try await upstream.write(ProxyHeader(source: client, destination: local))
    /// try await upstream.startTLS(settings: .client(serverName: "backend.example"))
    /// ```
    ///
    /// - Parameters:
    ///   - header: The client, and the address that it connected to.
    ///   - version: The version of the protocol that the receiver expects; 2 by default.
    ///   - timeout: As for `write(_:timeout:)`.
    /// - Throws: A `ProxyHeaderError` when the header cannot be sent in that version, and otherwise what
    ///   `write(_:timeout:)` throws.
    public nonisolated(nonsending) func write(
        _ header: ProxyHeader, as version: ProxyHeader.Version = .version2, timeout: Duration? = nil
    ) async throws {
        try await write(header.encoded(as: version), timeout: timeout)
    }

    /// Writes a part of a file: see `write(contentsOfFile:offset:length:withTimeout:tag:)` for how it is sent
    /// and what happens when it turns out shorter.
    ///
    /// Returns when the kernel has the bytes.
    ///
    /// - Parameters:
    ///   - path: The path of a regular file.
    ///   - offset: The first byte to send.
    ///   - length: The number of bytes; nil: to the end of the file, as it is now.
    ///   - timeout: As for `write(_:timeout:)`.
    ///   - progress: Called ten times a second while the file is sent, also when nothing moves, and once more
    ///     when all of it is: with files of any length at least once. It runs in the calling task, where the
    ///     caller runs, so it may use what belongs to the caller's actor; the transfer does not wait for it.
    /// - Throws: What `write(_:timeout:)` throws, `.badParameter` when the file is not a regular file or the
    ///   part lies outside it, and `.system` when it cannot be opened. The message of an error that comes
    ///   later says how many bytes were sent.
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

    // MARK: - Inside

    func prepareWrite(_ timeout: Duration?) throws -> (TaskOperations, OperationLimit) {
        let limit = OperationLimit(timeout)
        try limit.check(.write)
        guard let operations else { throw Self.notInUse("write") }
        return (operations, limit)
    }
}

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Writes all of `data`, after the writes that are already queued.
    ///
    /// `socket(_:didWriteDataWithTag:)` follows once the kernel has accepted the last byte. You may call this
    /// before the connection is established. The call has no effect if the socket is not in use, after one of
    /// the `disconnect` methods, or if `data` is empty.
    ///
    /// - Parameters:
    ///   - data: The bytes to write. Not copied, except for small writes that are combined.
    ///   - timeout: The number of seconds the write may take, or a negative number for no limit. The clock
    ///     starts when this is the oldest incomplete write, the connection is established, and no handshake
    ///     precedes the write. Until then, only the limits of the preceding writes or of `beginTLS` apply.
    ///     When the timeout expires, `socket(_:shouldTimeoutWriteWithTag:elapsed:bytesDone:)` decides what
    ///     happens.
    ///   - tag: An application-defined value that is returned on completion.
    public func write(_ data: Data, withTimeout timeout: TimeInterval, tag: Int = 0) {
        withConnection { connection in
            if connection.isOpenToCallback, connection.data.join(data, timeout: timeout, tag: tag) { return }
            connection.write(WritePacket(data: data, timeout: timeout, completion: .delegate(tag: tag)))
        }
    }

    /// Writes all of `data`, like `write(_:withTimeout:tag:)` without a limit.
    public func write(_ data: Data, tag: Int) {
        write(data, withTimeout: -1, tag: tag)
    }

    /// Writes part of a file, after the writes that are already queued.
    ///
    /// Without TLS, the kernel sends the data directly from its page cache (sendfile(2)). Otherwise like
    /// `write(_:withTimeout:tag:)`. The file is opened during the call. If the file shrinks before the
    /// requested part has been sent, the connection closes immediately with `.system` and the errno
    /// `ENODATA`. So that the peer can detect the missing bytes, a TCP connection is reset, and no
    /// close_notify is sent under TLS. A Unix-domain socket without TLS cannot signal this: the peer sees an
    /// orderly close, and can detect the missing bytes only if your protocol announces the length.
    ///
    /// - Parameters:
    ///   - path: The path of a regular file.
    ///   - offset: The position of the first byte to send.
    ///   - length: The number of bytes, or `nil` to send up to the current end of the file.
    ///   - timeout: See `write(_:withTimeout:tag:)`.
    ///   - tag: An application-defined value that is returned on completion.
    /// - Throws: `.badParameter` if the file is not a regular file, or if the requested part is outside the
    ///   file; `.system` if the file cannot be opened.
    public func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, withTimeout timeout: TimeInterval, tag: Int = 0
    ) throws(AsyncSocketError) {
        let region = try Self.region(ofFile: path, offset: offset, length: length)
        connection?.write(WritePacket(file: region, timeout: timeout, completion: .delegate(tag: tag)))
    }

    /// Writes part of a file, like `write(contentsOfFile:offset:length:withTimeout:tag:)` without a limit.
    public func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, tag: Int
    ) throws(AsyncSocketError) {
        try write(contentsOfFile: path, offset: offset, length: length, withTimeout: -1, tag: tag)
    }

    /// Sends everything written so far, by a delegate or by tasks. Returns immediately, without waiting.
    ///
    /// Seldom needed: a write is sent immediately, unless the running code is likely to write more. In that
    /// case the data is sent when that code has finished. There are two such cases:
    ///
    /// - The socket holds unread bytes that arrived together with the bytes being processed. Writes by an
    ///   inline delegate, or by a task on the socket's event loop, are then coalesced. They are sent when all
    ///   complete messages are processed or 64 KiB have accumulated.
    /// - Writes within one inline callback, or within a batch of callbacks on a delegate queue, are coalesced
    ///   and sent when the callbacks have returned. If the first of these writes is of borrowed bytes
    ///   (`RawSpan`), it is sent immediately.
    ///
    /// Call this before a long computation if the peer should receive its response first.
    public func flush() {
        withConnection { $0.flush() }
    }

    static func region(ofFile path: String, offset: Int, length: Int?) throws(AsyncSocketError) -> FileRegion {
        guard !path.utf8.contains(0) else { throw .badParameter(.write, "the path \"\(path)\" contains a zero byte") }
        do throws(SystemError) {
            return try FileRegion(path: path, offset: offset, length: length)
        } catch {
            throw AsyncSocketError(file: error, path: path, operation: .write)
        }
    }

    /// The progress of the oldest incomplete write, or `nil` if no write is queued. A snapshot, like
    /// `readProgress`: the write may have progressed since.
    public var writeProgress: OperationProgress? {
        connection?.progress.write
    }

    /// The number of bytes waiting to be written, which neither the kernel nor TLS has accepted yet. A
    /// snapshot, like `readProgress`.
    public var pendingWriteByteCount: Int {
        connection?.progress.waitingByteCount ?? 0
    }
}

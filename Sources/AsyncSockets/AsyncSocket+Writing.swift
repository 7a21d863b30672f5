public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Writes all of `data`, after the writes that are queued already.
    ///
    /// `socket(_:didWriteDataWithTag:)` follows once the kernel has taken the last byte. You may call this
    /// before the connection is established. On a socket that is not in use, after one of the `disconnect`
    /// methods, or without data it does nothing.
    ///
    /// - Parameters:
    ///   - data: The bytes. They are not copied.
    ///   - timeout: Seconds from the moment when this is the oldest incomplete write, on a connection that is
    ///     established and behind no handshake; negative: no limit. While it waits behind another write, or a
    ///     `beginTLS`, the time of that one counts. When the time is over,
    ///     `socket(_:shouldTimeoutWriteWithTag:elapsed:bytesDone:)` decides what happens.
    ///   - tag: Comes back with the completion.
    public func write(_ data: Data, withTimeout timeout: TimeInterval, tag: Int = 0) {
        withConnection { $0.write(WritePacket(data: data, timeout: timeout, completion: .delegate(tag: tag))) }
    }

    /// Writes all of `data`, like `write(_:withTimeout:tag:)` without a limit.
    public func write(_ data: Data, tag: Int) {
        write(data, withTimeout: -1, tag: tag)
    }

    /// Writes a part of a file, after the writes that are queued already.
    ///
    /// Without TLS the kernel sends it from its own memory (sendfile(2)). Otherwise this is like
    /// `write(_:withTimeout:tag:)`. The call opens the file. When the file turns out shorter than announced,
    /// the connection ends at once with `.system` and the errno `ENODATA`. The peer gets a reset over TCP,
    /// and no close_notify with TLS, so that it knows that bytes are missing. A Unix-domain socket without
    /// TLS cannot say so: the peer sees an orderly end, unless your protocol announces the number of bytes.
    ///
    /// - Parameters:
    ///   - path: The path of a regular file.
    ///   - offset: The first byte to send.
    ///   - length: The number of bytes; nil: to the end of the file, as it is now.
    ///   - timeout: As for `write(_:withTimeout:tag:)`.
    ///   - tag: Comes back with the completion.
    /// - Throws: `.badParameter` when the file is not a regular file, or the part lies outside it; `.system`
    ///   when the file cannot be opened.
    public func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, withTimeout timeout: TimeInterval, tag: Int = 0
    ) throws(AsyncSocketError) {
        let region = try Self.region(ofFile: path, offset: offset, length: length)
        connection?.write(WritePacket(file: region, timeout: timeout, completion: .delegate(tag: tag)))
    }

    /// Writes a part of a file, like `write(contentsOfFile:offset:length:withTimeout:tag:)` without a limit.
    public func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, tag: Int
    ) throws(AsyncSocketError) {
        try write(contentsOfFile: path, offset: offset, length: length, withTimeout: -1, tag: tag)
    }

    /// Sends at once what has been written, in both styles, and waits for nothing.
    ///
    /// It is seldom needed: a write leaves at once, except while the code that is running is likely
    /// to write more, and then when that code is over. That is so in two cases:
    ///
    /// - Bytes of the peer lie unread that came together with those that are being answered. Then the writes
    ///   of an inline delegate, or of a task on the event loop of the socket, leave together, when all
    ///   complete messages are answered or 64 KiB are together.
    /// - The writes of one inline callback, or of one block of several callbacks on a delegate queue, leave
    ///   together when they have returned; a first one of borrowed bytes (`RawSpan`) leaves at once.
    ///
    /// Call this before code that takes long, if the peer should have its answer before that.
    public func flush() {
        withConnection { $0.flush() }
    }

    static func region(ofFile path: String, offset: Int, length: Int?) throws(AsyncSocketError) -> FileRegion {
        guard !path.utf8.contains(0) else { throw .badParameter("write", "the path \(path) contains a zero byte") }
        do throws(SystemError) {
            return try FileRegion(path: path, offset: offset, length: length)
        } catch {
            throw AsyncSocketError(file: error, path: path, operation: "write")
        }
    }

    /// The progress of the oldest incomplete write; nil when none is queued. A snapshot, like `readProgress`:
    /// the write may be further by now.
    public var writeProgress: OperationProgress? {
        connection?.progress.write
    }

    /// How many bytes wait to be written: those that neither the kernel nor TLS has taken yet. A snapshot,
    /// like `readProgress`.
    public var pendingWriteByteCount: Int {
        connection?.progress.waitingByteCount ?? 0
    }
}

public import FoundationEssentials
internal import Glibc
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Writes all of `data`, after the writes that were queued before.
    ///
    /// `socket(_:didWriteDataWithTag:)` follows when the kernel has taken the last byte. It may be called
    /// before the connection is up; on a socket that is not in use, after one of the `disconnect` methods,
    /// or with no data it does nothing.
    ///
    /// - Parameters:
    ///   - data: The bytes. They are not copied.
    ///   - timeout: Seconds from the moment this is the oldest write that is not complete; negative (the
    ///     default): no limit. What happens then is for
    ///     `socket(_:shouldTimeoutWriteWithTag:elapsed:bytesDone:)` to say.
    ///   - tag: Comes back with the completion.
    public func write(_ data: Data, withTimeout timeout: TimeInterval = -1, tag: Int = 0) {
        withConnection { $0.write(WritePacket(data: data, timeout: timeout, completion: .delegate(tag: tag))) }
    }

    /// Writes a part of a file, after the writes that were queued before.
    ///
    /// Without TLS the kernel sends it from its own memory (sendfile(2)). Otherwise this is like
    /// `write(_:withTimeout:tag:)`. The file is opened now. When it turns out shorter than promised, the
    /// connection ends at once with `.system` and the errno `ENODATA`. The peer gets a reset over TCP, and no
    /// close_notify with TLS, so that it knows that bytes are missing. A Unix-domain socket without TLS has
    /// no way to say so: there the peer sees an end in good order, unless your protocol says how many bytes
    /// there are.
    ///
    /// - Parameters:
    ///   - path: The path of a regular file.
    ///   - offset: The first byte to send.
    ///   - length: The number of bytes; nil: to the end of the file, as it is now.
    ///   - timeout: As for `write(_:withTimeout:tag:)`.
    ///   - tag: Comes back with the completion.
    /// - Throws: `.badParameter` when the file is no regular file, or the part lies outside of it; `.system`
    ///   when it cannot be opened.
    public func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, withTimeout timeout: TimeInterval = -1, tag: Int = 0
    ) throws(AsyncSocketError) {
        guard !path.utf8.contains(0) else { throw .badParameter("write", "the path \(path) contains a zero") }
        do throws(SystemError) {
            let region = try FileRegion(path: path, offset: offset, length: length)
            connection?.write(WritePacket(file: region, timeout: timeout, completion: .delegate(tag: tag)))
        } catch {
            throw AsyncSocketError(file: error, path: path)
        }
    }

    /// How far the oldest write has come that is not complete; nil when none is queued. A snapshot, as
    /// `readProgress` is: the write may be further by now.
    public var writeProgress: OperationProgress? {
        connection?.progress.write
    }

    /// How many bytes wait to be written: those that neither the kernel nor TLS has taken yet. A snapshot, as
    /// `readProgress` is.
    public var pendingWriteByteCount: Int {
        connection?.progress.waitingByteCount ?? 0
    }
}

extension AsyncSocketError {
    fileprivate init(file error: SystemError, path: String) {
        switch error.errno {
        case ERANGE: self = .badParameter("write", "the part to be sent lies outside of \(path)")
        case EINVAL: self = .badParameter("write", "\(path) is no regular file")
        default: self.init(error, operation: "write")
        }
    }
}

public import FoundationEssentials
internal import SocketCore

extension AsyncSocket {
    /// Writes all of `data`, after the writes that were queued before.
    ///
    /// `socket(_:didWriteDataWithTag:)` follows when the kernel has taken the last byte. It may be called before the connection stands; on a
    /// socket that is not in use, after one of the `disconnect` methods, or with no data it does nothing.
    ///
    /// - Parameters:
    ///   - data: The bytes. They are not copied.
    ///   - timeout: Seconds from the moment this is the oldest write that is not complete; negative: no limit. What happens then is for
    ///     `socket(_:shouldTimeoutWriteWithTag:elapsed:bytesDone:)` to say.
    ///   - tag: Comes back with the completion.
    public func write(_ data: Data, withTimeout timeout: TimeInterval, tag: Int) {
        connection?.post(.write(WritePacket(data: data, timeout: timeout, tag: tag)))
    }
}

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Reads whatever bytes arrive first.
    ///
    /// The socket performs reads in the order in which you queue them. It delivers each result with
    /// `socket(_:didRead:withTag:)` as soon as the read is complete. You may queue reads as soon as you have
    /// called `connect`, before the connection is established. If the socket is not in use, or after one of
    /// the `disconnect` methods, the read is dropped. Bytes that no read has consumed are kept for the next
    /// read. If the connection closes first, `socketDidDisconnect(_:withError:)` reports the reason.
    ///
    /// - Parameters:
    ///   - timeout: The number of seconds the read may take, or a negative number (the default) for no limit.
    ///     The clock starts when this is the oldest incomplete read, the connection is established, and no
    ///     handshake precedes the read. Until then, only the limits of the preceding reads or of `beginTLS`
    ///     apply. When the timeout expires, `socket(_:shouldTimeoutReadWithTag:elapsed:bytesDone:)` decides
    ///     what happens.
    ///   - buffer: The buffer to store the bytes in, or `nil` to allocate new memory.
    ///   - offset: The position in `buffer` of the first byte, from 0 to its `count`. Any other value closes
    ///     the connection with `.badParameter`.
    ///   - maxLength: The maximum number of bytes to deliver, greater than zero. Any other value closes the
    ///     connection with `.badParameter`. By default, a read delivers everything that was read ahead, which
    ///     is limited to 64 KiB.
    ///   - tag: An application-defined value that is returned with the data.
    public func readData(
        withTimeout timeout: TimeInterval = -1, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        maxLength: Int = .max, tag: Int = 0
    ) {
        guard maxLength > 0 else { return refuse("maxLength must be at least 1, but is \(maxLength)") }
        enqueue(.anyBytes, maxLength, timeout, tag, buffer, offset)
    }

    /// Reads exactly `length` bytes.
    ///
    /// Otherwise like `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///
    /// - Parameters:
    ///   - length: The number of bytes. A read of zero bytes completes without data after the earlier reads.
    ///     A negative number closes the connection with `.badParameter`. The read allocates memory only for
    ///     bytes that have arrived, not for the requested length. Even so, check a length received from the
    ///     peer before you pass it here.
    ///   - timeout: See `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - buffer: The buffer to store the bytes in, or `nil` to allocate new memory.
    ///   - offset: The position in `buffer` of the first byte, from 0 to its `count`. Any other value closes
    ///     the connection with `.badParameter`.
    ///   - tag: An application-defined value that is returned with the data.
    public func readData(
        toLength length: Int, withTimeout timeout: TimeInterval = -1, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        tag: Int = 0
    ) {
        guard length >= 0 else { return refuse("the length must be at least 0, but is \(length)") }
        enqueue(.length(length), .max, timeout, tag, buffer, offset)
    }

    /// Reads up to and including the first occurrence of `delimiter`.
    ///
    /// The connection fails with `.readMaxedOut` if `maxLength` bytes have arrived without the delimiter. A
    /// delimiter that ends exactly at `maxLength` is still found. Otherwise like
    /// `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///
    /// - Parameters:
    ///   - delimiter: At least one byte and at most `maxLength` bytes. Any other delimiter closes the
    ///     connection with `.badParameter`. The delimiter is part of the delivered data.
    ///   - timeout: See `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - buffer: The buffer to store the bytes in, or `nil` to allocate new memory.
    ///   - offset: The position in `buffer` of the first byte, from 0 to its `count`. Any other value closes
    ///     the connection with `.badParameter`.
    ///   - maxLength: The maximum number of bytes to deliver, including the delimiter. Defaults to 1 MiB.
    ///     With `.max`, the peer decides how much memory the read uses.
    ///   - tag: An application-defined value that is returned with the data.
    public func readData(
        to delimiter: Data, withTimeout timeout: TimeInterval = -1, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        maxLength: Int = AsyncSocket.defaultMaxLength, tag: Int = 0
    ) {
        guard !delimiter.isEmpty else { return refuse("the delimiter is empty: pass at least one byte") }
        guard delimiter.count <= maxLength else {
            return refuse("the delimiter is longer than maxLength (\(maxLength))")
        }
        enqueue(.delimiter(delimiter), maxLength, timeout, tag, buffer, offset)
    }

    /// Delivers the next `length` bytes with `socket(_:didRead:withTag:)` without consuming them.
    ///
    /// With this, one port can serve several protocols: look at the first bytes, then call `beginTLS` or read
    /// a request. The next read delivers the same bytes, and a server's `beginTLS` takes them as the start of
    /// the handshake. Reads that are already queued are performed first.
    ///
    /// - Parameters:
    ///   - length: The number of bytes, from 1 to 65,536. Any other number closes the connection with
    ///     `.badParameter`.
    ///   - timeout: See `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - tag: An application-defined value that is returned with the data.
    public func peekData(toLength length: Int, withTimeout timeout: TimeInterval = -1, tag: Int = 0) {
        guard ReadHalf.peekLengths.contains(length) else {
            connection?.post(.fail(.badPeekLength(length)))
            return
        }
        enqueue(.peek(length), length, timeout, tag, nil, 0)
    }

    /// Reads everything until the peer closes its side of the connection.
    ///
    /// The read is complete when the peer closes its side in an orderly way: with a FIN or, under TLS, a
    /// close_notify. Then `socketDidDisconnect(_:withError:)` follows with `.closedByPeer`, or
    /// `socketDidCloseReadStream(_:)` on a socket without `autoDisconnectOnClosedReadStream`. If the stream
    /// breaks off in any other way, it may be truncated: the bytes received so far are delivered with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`, and `socketDidDisconnect(_:withError:)`
    /// follows. The connection fails with `.readMaxedOut` if more than `maxLength` bytes arrive.
    ///
    /// - Parameters:
    ///   - timeout: See `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`. The timeout covers the
    ///     whole read.
    ///   - maxLength: The maximum number of bytes to deliver. Defaults to 1 MiB. With `.max`, the peer
    ///     decides how much memory the read uses.
    ///   - tag: An application-defined value that is returned with the data.
    public func readDataToEnd(
        withTimeout timeout: TimeInterval = -1, maxLength: Int = AsyncSocket.defaultMaxLength, tag: Int = 0
    ) {
        guard maxLength >= 0 else { return refuse("maxLength must be at least 0, but is \(maxLength)") }
        enqueue(.end, maxLength, timeout, tag, nil, 0)
    }

    /// The default `maxLength` of reads in which the peer determines the length: 1 MiB.
    public static let defaultMaxLength = 1 << 20

    /// The progress of the oldest incomplete read, or `nil` if no read is queued. In an inline callback the
    /// value is current. Elsewhere it is a snapshot from the end of the last turn on the event loop, and the
    /// read may have progressed since.
    public var readProgress: OperationProgress? {
        connection?.progress.read
    }

    // Inlined, so that the packet is specialized for each goal.
    @inline(__always)
    private func enqueue(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: TimeInterval, _ tag: Int, _ buffer: ReadBuffer?, _ offset: Int
    ) {
        if let buffer, !(0...buffer.count).contains(offset) {
            return refuse("offset \(offset) is outside the \(buffer.count)-byte buffer")
        }
        let target = buffer.map { (buffer: $0, offset: offset) }
        withConnection {
            $0.read(
                ReadPacket.make(
                    goal, maxLength: maxLength, timeout: timeout, completion: .delegate(tag: tag), target: target))
        }
    }

    private func refuse(_ message: String) {
        connection?.post(.fail(.badParameter(.read, message)))
    }
}

extension AsyncSocket {
    /// Carriage return and line feed (`crlfData()`): the line terminator of mail, HTTP and many other
    /// protocols. Use it as a delimiter for `readData(to:withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    public static let crlf = Data([0x0D, 0x0A])
    /// A carriage return (`crData()`).
    public static let cr = Data([0x0D])
    /// A line feed (`lfData()`).
    public static let lf = Data([0x0A])
    /// A zero byte (`zeroData()`).
    public static let zero = Data([0x00])
}

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Reads the first bytes that arrive, however many.
    ///
    /// The socket serves reads in the order in which you queue them, each as soon as it has what it asked
    /// for, with `socket(_:didRead:withTag:)`. You may queue a read from `connect` on, before the connection
    /// is established. On a socket that is not in use, and after one of the `disconnect` methods, the read is
    /// dropped. Bytes that no read has taken wait for the next one. When the connection ends first,
    /// `socketDidDisconnect(_:withError:)` says why.
    ///
    /// - Parameters:
    ///   - timeout: Seconds from the moment when this is the oldest incomplete read, on a connection that is
    ///     established and behind no handshake; negative (the default): no limit. While it waits behind
    ///     another read, or a `beginTLS`, the time of that one counts. When the time is over,
    ///     `socket(_:shouldTimeoutReadWithTag:elapsed:bytesDone:)` decides what happens.
    ///   - buffer: Where to put the bytes; nil: in new memory.
    ///   - offset: Where in `buffer` to put them, from 0 to its `count`; otherwise the connection ends with
    ///     `.badParameter`.
    ///   - maxLength: The most bytes to deliver, more than zero; otherwise the connection ends with
    ///     `.badParameter`. By default a read delivers what was read ahead, which is bounded (64 KiB).
    ///   - tag: Comes back with the data.
    public func readData(
        withTimeout timeout: TimeInterval = -1, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        maxLength: ByteLimit = .unlimited, tag: Int = 0
    ) {
        guard maxLength.count > 0 else { return refuse("maxLength must be at least 1, and is \(maxLength.count)") }
        enqueue(.anyBytes, maxLength, timeout, tag, buffer, offset)
    }

    /// Reads exactly `length` bytes.
    ///
    /// Otherwise it is like `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///
    /// - Parameters:
    ///   - length: Zero completes with no bytes when its turn comes; a negative number ends the connection
    ///     with `.badParameter`. The read uses memory for the bytes that have arrived, not for those
    ///     announced; still, check a length that the peer has sent before you ask for that much.
    ///   - timeout: As for `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - buffer: Where to put the bytes; nil: in new memory.
    ///   - offset: Where in `buffer` to put them, from 0 to its `count`; otherwise the connection ends with
    ///     `.badParameter`.
    ///   - tag: Comes back with the data.
    public func readData(
        toLength length: Int, withTimeout timeout: TimeInterval = -1, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        tag: Int = 0
    ) {
        guard length >= 0 else { return refuse("the length must be at least 0, and is \(length)") }
        enqueue(.length(length), .unlimited, timeout, tag, buffer, offset)
    }

    /// Reads up to and including the first occurrence of `delimiter`.
    ///
    /// The connection ends with `.readMaxedOut` when `maxLength` bytes have arrived without the delimiter; a
    /// delimiter that ends exactly at `maxLength` is found. Otherwise it is like
    /// `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///
    /// - Parameters:
    ///   - delimiter: At least one byte and at most `maxLength`; otherwise the connection ends with
    ///     `.badParameter`. It is part of the delivered data.
    ///   - timeout: As for `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - buffer: Where to put the bytes; nil: in new memory.
    ///   - offset: Where in `buffer` to put them, from 0 to its `count`; otherwise the connection ends with
    ///     `.badParameter`.
    ///   - maxLength: The most bytes to deliver, including the delimiter; 1 MiB by default. Write a literal,
    ///     `.bytes(count)` for a computed number, or `.unlimited`: then the peer decides how much memory the
    ///     read takes.
    ///   - tag: Comes back with the data.
    public func readData(
        to delimiter: Data, withTimeout timeout: TimeInterval = -1, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        maxLength: ByteLimit = AsyncSocket.defaultMaxLength, tag: Int = 0
    ) {
        guard !delimiter.isEmpty else { return refuse("the delimiter is empty: give at least one byte") }
        guard delimiter.count <= maxLength.count else {
            return refuse("the delimiter is longer than maxLength, which is \(maxLength)")
        }
        enqueue(.delimiter(delimiter), maxLength, timeout, tag, buffer, offset)
    }

    /// Reads everything until the peer ends its stream.
    ///
    /// It is complete when the peer has closed its side in good order: with a FIN or, with TLS, a
    /// close_notify. Then `socketDidDisconnect(_:withError:)` follows with `.closedByPeer`, or
    /// `socketDidCloseReadStream(_:)` on a socket without `autoDisconnectOnClosedReadStream`. When the stream
    /// ends in any other way, the bytes so far are delivered with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`, since it may be cut short, and the end
    /// follows. The connection ends with `.readMaxedOut` when more than `maxLength` bytes come.
    ///
    /// - Parameters:
    ///   - timeout: As for `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`; it covers the whole
    ///     read.
    ///   - maxLength: The most bytes to deliver; 1 MiB by default. With `.unlimited` the peer decides how
    ///     much memory the read takes.
    ///   - tag: Comes back with the data.
    public func readDataToEnd(
        withTimeout timeout: TimeInterval = -1, maxLength: ByteLimit = AsyncSocket.defaultMaxLength, tag: Int = 0
    ) {
        guard maxLength.count >= 0 else { return refuse("maxLength must be at least 0, and is \(maxLength.count)") }
        enqueue(.end, maxLength, timeout, tag, nil, 0)
    }

    /// The default `maxLength` of reads whose length the peer decides: 1 MiB.
    public static let defaultMaxLength = ByteLimit.mebibytes(1)

    /// The progress of the oldest incomplete read; nil when none is queued. In an inline callback it is
    /// current; elsewhere it is a snapshot from the end of the last turn on the event loop, and the read may
    /// be further by now.
    public var readProgress: OperationProgress? {
        connection?.progress.read
    }

    // Inlined, so that the packet is made for one goal.
    @inline(__always)
    private func enqueue(
        _ goal: ReadPacket.Goal, _ maxLength: ByteLimit, _ timeout: TimeInterval, _ tag: Int, _ buffer: ReadBuffer?, _ offset: Int
    ) {
        if let buffer, !(0...buffer.count).contains(offset) {
            return refuse("the offset \(offset) lies outside the buffer, which has \(buffer.count) bytes")
        }
        let target = buffer.map { (buffer: $0, offset: offset) }
        withConnection {
            $0.read(
                ReadPacket.make(
                    goal, maxLength: maxLength.count, timeout: timeout, completion: .delegate(tag: tag), target: target))
        }
    }

    private func refuse(_ message: String) {
        connection?.post(.fail(.badParameter("read", message)))
    }
}

extension AsyncSocket {
    /// Carriage return and line feed (`crlfData()`), the end of a line in mail, HTTP and many other
    /// protocols: a delimiter for `readData(to:withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    public static let crlf = Data([0x0D, 0x0A])
    /// Carriage return (`crData()`).
    public static let cr = Data([0x0D])
    /// Line feed (`lfData()`).
    public static let lf = Data([0x0A])
    /// A zero byte (`zeroData()`).
    public static let zero = Data([0x00])
}

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Borrowed bytes, for code that parses or forwards them immediately and needs no copy.
extension AsyncSocket {
    /// Calls `body` with all available bytes as soon as there are any. Returns `nil` after an orderly close.
    ///
    /// The call consumes the bytes. They are valid only until `body` returns. `body` must be quick because
    /// it blocks the connection. No memory is allocated for the bytes, unless the socket has a socket queue.
    /// If several tasks read at the same time, it is undefined which task receives the bytes.
    ///
    /// - Parameters:
    ///   - timeout: See `read(maxLength:timeout:)`.
    ///   - body: Receives the bytes, at least one.
    /// - Returns: The value that `body` returns.
    /// - Throws: The errors of `read(maxLength:timeout:)` and of `body`. The bytes are consumed even if
    ///   `body` throws.
    @inlinable
    public nonisolated(nonsending) func withNextBytes<Result>(
        timeout: Duration? = nil, _ body: (RawSpan) throws -> Result
    ) async throws -> Result? {
        var outcome: Swift.Result<Result, any Error>?
        try await passNextBytes(timeout) { bytes in outcome = Swift.Result { try body(bytes) } }
        return try outcome?.get()
    }

    /// The non-generic part of `withNextBytes(timeout:_:)`. Generic code is slow across modules.
    @usableFromInline
    nonisolated(nonsending) func passNextBytes(_ timeout: Duration?, to body: (RawSpan) -> Void) async throws {
        let limit = OperationLimit(timeout)
        guard let operations else {
            try limit.check(.read)
            throw Self.notInUse(.read)
        }
        do {
            if operations.connection.turn.isOnQueue {
                return body(try await operations.read(.anyBytes, .max, limit).bytes)
            }
            var next = operations.takeOrQueue(limit, body)
            while let wait = next {
                _ = try await operations.finish(wait, isOver: false)
                next = operations.takeOrQueue(limit, body, after: wait)
            }
            if JobBudget.isUsedUp(by: operations.connection) { await JobBudget.renew() }
        } catch let error as AsyncSocketError where error.isOrderlyEnd {}
    }

    /// Writes all of `bytes`. See `write(_:timeout:)` for `Data`. Only bytes that must be queued are copied.
    @inlinable
    public nonisolated(nonsending) func write(_ bytes: RawSpan, timeout: Duration? = nil) async throws {
        let pending = try bytes.withUnsafeBytes { try PendingWrite.start(on: self, copying: $0, timeout) }
        if let pending { try await pending.finish() }
    }
}

// Borrowed bytes for delegates.
extension AsyncSocket {
    /// Reads the first bytes that arrive, like `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`,
    /// and lends them to the delegate in `socket(_:didReadBytes:withTag:)`.
    ///
    /// For an inline delegate this is the fastest way to read, because the bytes are rarely copied. A
    /// delegate on a queue borrows a copy. The read takes all available bytes. Before `beginTLS`, read to a
    /// length or a delimiter instead, because the available bytes may include the peer's ClientHello.
    ///
    /// - Parameters:
    ///   - timeout: See `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - tag: A number that is passed to the delegate with the bytes.
    public func readBytes(withTimeout timeout: TimeInterval = -1, tag: Int = 0) {
        withConnection { $0.read(ReadPacket.make(.loan, timeout: timeout, completion: .delegate(tag: tag))) }
    }

    /// Writes all of `bytes`, like the method for `Data`, but copies them only if they must be queued.
    ///
    /// In an inline callback the bytes are sent immediately, unlike a write of `Data`, which is sent when
    /// the callback returns. Bytes are queued and sent together with other writes if this is the callback's
    /// second write, if another callback is pending, or if bytes from the peer are still unread. Outside an
    /// inline callback the bytes are always copied.
    ///
    /// - Parameters:
    ///   - bytes: The bytes. You can reuse their memory as soon as this method returns.
    ///   - timeout: See the method for `Data`. -1 means no limit.
    ///   - tag: A number that is passed to the delegate when the write completes.
    public func write(_ bytes: RawSpan, withTimeout timeout: TimeInterval, tag: Int = 0) {
        bytes.withUnsafeBytes { bytes in
            withConnection { connection in
                if writeAtOnce(bytes, timeout, tag, on: connection) { return }
                connection.write(WritePacket(data: Data(bytes), timeout: timeout, completion: .delegate(tag: tag)))
            }
        }
    }

    /// Returns `false` outside an inline callback or if the bytes must be queued.
    private func writeAtOnce(
        _ bytes: UnsafeRawBufferPointer, _ timeout: TimeInterval, _ tag: Int, on connection: StreamConnection
    ) -> Bool {
        guard connection.isOpenToCallback, connection.phase.isEstablished, connection.isOpenForData else { return false }
        // The session store may be called during the write. Its requests must not be served inside this
        // call.
        let wasDelivering = connection.outlet.leaveCallback()
        defer { connection.outlet.resumeCallback(wasDelivering) }
        return connection.data.writeAtOnce(bytes, timeout: timeout, tag: tag)
    }
}

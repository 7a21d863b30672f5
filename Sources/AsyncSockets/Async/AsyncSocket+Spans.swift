public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Bytes that are borrowed, not copied: for code that parses or forwards them at once.
extension AsyncSocket {
    /// Calls `body` with all bytes that are there, as soon as there are some; nil after an orderly end.
    ///
    /// The bytes are read with that, and valid during the call only. `body` must be quick: the connection
    /// waits meanwhile. No memory is allocated for the bytes. With several readers at a time, which of them
    /// gets the bytes is not defined.
    ///
    /// - Parameters:
    ///   - timeout: As for `read(atMost:timeout:)`.
    ///   - body: Gets the bytes, at least one.
    /// - Returns: What `body` returns.
    /// - Throws: What `read(atMost:timeout:)` and `body` throw. The bytes are read also when `body` throws.
    @inlinable
    public nonisolated(nonsending) func withNextBytes<Result>(
        timeout: Duration? = nil, _ body: (RawSpan) throws -> Result
    ) async throws -> Result? {
        var outcome: Swift.Result<Result, any Error>?
        try await passNextBytes(timeout) { bytes in outcome = Swift.Result { try body(bytes) } }
        return try outcome?.get()
    }

    /// `withNextBytes(timeout:_:)` without its type: code that is generic is slow across modules.
    @usableFromInline
    nonisolated(nonsending) func passNextBytes(_ timeout: Duration?, to body: (RawSpan) -> Void) async throws {
        let limit = OperationLimit(timeout)
        guard let operations else {
            try limit.check(.read)
            throw Self.notInUse("read")
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

    /// Writes all of `bytes`: see `write(_:timeout:)` for `Data`. They are copied only if they have to wait.
    public nonisolated(nonsending) func write(_ bytes: RawSpan, timeout: Duration? = nil) async throws {
        let (connection, limit) = try prepareWrite(timeout)
        let answer = bytes.withUnsafeBytes { connection.beginWrite(copying: $0, limit) }
        if answer.mustSuspend { try await connection.finish(answer) }
    }
}

// The same for delegates.
extension AsyncSocket {
    /// Reads the first bytes that arrive, like `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`,
    /// and lends them to the delegate: `socket(_:didReadBytes:withTag:)` follows.
    ///
    /// For an inline delegate this is the fastest way to read: the bytes are seldom copied. A delegate on a
    /// queue borrows a copy. The read takes all bytes that are there. Before `beginTLS` read to a length or a
    /// delimiter instead: the peer's ClientHello may be among those bytes.
    ///
    /// - Parameters:
    ///   - timeout: As for `readData(withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    ///   - tag: Comes back with the bytes.
    public func readBytes(withTimeout timeout: TimeInterval = -1, tag: Int = 0) {
        withConnection { $0.read(ReadPacket.make(.loan, timeout: timeout, completion: .delegate(tag: tag))) }
    }

    /// Writes all of `bytes`, like the method for `Data`, and copies them only if they have to wait.
    ///
    /// In an inline callback they leave at once, where `Data` waits for the end of the callback, if nothing
    /// else waits to be done on the socket. Otherwise they leave with what waits: so do the second write of a
    /// callback, a write before another callback, and one while bytes of the peer lie unread. Outside an
    /// inline callback they are copied.
    ///
    /// - Parameters:
    ///   - bytes: The bytes. You may use their memory again when this returns.
    ///   - timeout: As for that method; -1: no limit.
    ///   - tag: Comes back with the completion.
    public func write(_ bytes: RawSpan, withTimeout timeout: TimeInterval, tag: Int = 0) {
        bytes.withUnsafeBytes { bytes in
            withConnection { connection in
                if writeAtOnce(bytes, timeout, tag, on: connection) { return }
                connection.write(WritePacket(data: Data(bytes), timeout: timeout, completion: .delegate(tag: tag)))
            }
        }
    }

    /// False outside an inline callback, and when the bytes have to wait.
    private func writeAtOnce(
        _ bytes: UnsafeRawBufferPointer, _ timeout: TimeInterval, _ tag: Int, on connection: StreamConnection
    ) -> Bool {
        guard connection.isOpenToCallback, connection.phase.isEstablished, connection.isOpenForData else { return false }
        // A store of sessions may be called meanwhile: what it asks for is not done within this.
        let wasDelivering = connection.outlet.leaveCallback()
        defer { connection.outlet.resumeCallback(wasDelivering) }
        return connection.data.writeAtOnce(bytes, timeout: timeout, tag: tag)
    }
}

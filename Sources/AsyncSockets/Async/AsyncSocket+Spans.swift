internal import FoundationEssentials
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
    public nonisolated(nonsending) func withNextBytes<Result>(
        timeout: Duration? = nil, _ body: (RawSpan) throws -> Result
    ) async throws -> Result? {
        let limit = OperationLimit(timeout)
        try limit.check(.read)
        guard let operations else { throw Self.notInUse("read") }
        do {
            if operations.connection.turn.isOnQueue {
                let data = try await operations.read(.anyBytes, .max, limit)
                return try body(data.bytes)
            }
            while true {
                if let result = try operations.takeBytes(body) {
                    if JobBudget.isUsedUp(by: operations.connection) { await JobBudget.renew() }
                    return result
                }
                _ = try await operations.read(.arrival, .max, limit)
            }
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return nil
        }
    }

    /// Writes all of `bytes`: see `write(_:timeout:)` for `Data`. They are copied only if they have to wait.
    public nonisolated(nonsending) func write(_ bytes: RawSpan, timeout: Duration? = nil) async throws {
        let (connection, limit) = try prepareWrite(timeout)
        let answer = bytes.withUnsafeBytes { connection.beginWrite(copying: $0, limit) }
        if answer.mustSuspend { try await connection.finish(answer) }
    }
}

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

/// Session ticket keys that are kept in memory and replaced every hour. With `HotRestart`, a new process
/// takes them over, so that clients can resume the sessions of the old process.
///
/// A key encrypts tickets for one hour and decrypts them for two. Several listeners can share one object.
public final class TLSRotatingTicketKeys: TLSTicketKeySource {
    private struct State {
        var current: TLSTicketKey
        var previous: TLSTicketKey?
    }

    private let state: Locked<State>
    private let clock: @Sendable () -> Int

    /// Creates a random key.
    ///
    /// - Throws: `internalError` if OpenSSL cannot create random bytes.
    public convenience init() throws(TLSError) {
        try self.init(clock: Self.secondsSinceBoot)
    }

    package init(clock: @escaping @Sendable () -> Int) throws(TLSError) {
        guard let key = TLSTicketKey(at: clock()) else { throw .noRandomKey }
        (state, self.clock) = (Locked(State(current: key)), clock)
    }

    /// The current keys. Creates a new key if the current one is an hour old. If OpenSSL cannot create one,
    /// the old key stays in use.
    public var keys: TLSTicketKeys {
        let now = clock()
        let state = state.withLock { state in
            if now - state.current.birth >= TicketKeyRing.period, let next = TLSTicketKey(at: now) {
                state = State(current: next, previous: state.current)
            }
            if let previous = state.previous, now - previous.birth >= 2 * TicketKeyRing.period { state.previous = nil }
            return state
        }
        return TLSTicketKeys(current: state.current, decryptionOnly: state.previous.map { [$0] } ?? [])
    }

    /// A clock that all processes share, that advances while the machine sleeps, and that cannot be set.
    package static let secondsSinceBoot: @Sendable () -> Int = {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return time.tv_sec
    }

    // MARK: - Handover

    private static let recordLength = TLSTicketKey.length + MemoryLayout<Int64>.size

    /// Uses the keys of another process, in the form of `withRecords(_:)`.
    ///
    /// - Throws: `invalidSettings` for anything else.
    package init(
        records: UnsafeRawBufferPointer, clock: @escaping @Sendable () -> Int = TLSRotatingTicketKeys.secondsSinceBoot
    ) throws(TLSError) {
        guard records.count == Self.recordLength || records.count == 2 * Self.recordLength else { throw .invalidRecords }
        let keys = stride(from: 0, to: records.count, by: Self.recordLength).map { start in
            let bytes = SecretBytes(copying: records[start..<start + TLSTicketKey.length])
            let birth = records.loadUnaligned(fromByteOffset: start + TLSTicketKey.length, as: Int64.self)
            return TLSTicketKey(bytes, birth: Int(clamping: Int64(littleEndian: birth)))
        }
        guard keys.allSatisfy({ (0...max(clock(), 0)).contains($0.birth) }) else { throw .invalidRecords }
        state = Locked(State(current: keys[0], previous: keys.count > 1 ? keys[1] : nil))
        self.clock = clock
    }

    /// Calls `body` with the current key and any previous key: 80 bytes each, followed by the time of
    /// creation. The bytes are wiped afterwards.
    package func withRecords<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let keys = keys
        let all = [keys.current] + keys.decryptionOnly
        let records = SecretBytes(count: all.count * Self.recordLength)
        for (index, key) in all.enumerated() {
            let record = UnsafeMutableRawBufferPointer(
                rebasing: records.writableBytes[index * Self.recordLength..<(index + 1) * Self.recordLength])
            key.copy(to: record)
            record.storeBytes(of: Int64(key.birth).littleEndian, toByteOffset: TLSTicketKey.length, as: Int64.self)
        }
        return try withExtendedLifetime(records) { () throws(Failure) in try records.withBytes(body) }
    }
}

extension TLSError {
    fileprivate static var noRandomKey: TLSError {
        TLSError(.internalError, "OpenSSL cannot create a random key", operation: "RAND_bytes")
    }

    fileprivate static var invalidRecords: TLSError {
        TLSError(.invalidSettings, "the ticket keys of the other process are not valid", operation: "TLSRotatingTicketKeys")
    }
}

internal import COpenSSL
internal import SocketBuffers

/// The sessions of TLS 1.2 clients that resume by session identifier and send no ticket extension (RFC
/// 5246, 7.3). They are kept in the memory of one context until they expire. Their number and total size
/// are limited; the newest sessions are kept.
///
/// Each session is stored as bytes, as in a ticket, and each connection receives a separate object,
/// because OpenSSL modifies the session of a connection without a lock.
package final class IdentifiedSessions: Sendable {
    private struct Entry {
        let bytes: SecretBytes
        let end: Int
    }

    private struct State {
        var entries: [[UInt8]: Entry] = [:]
        /// The identifiers in order of arrival, starting at index `oldest`. The identifier of a removed
        /// session stays in the array.
        var identifiers: [[UInt8]] = []
        var oldest = 0
        var byteCount = 0

        var waitingCount: Int { identifiers.count - oldest }

        mutating func remove(_ identifier: [UInt8]) {
            if let entry = entries.removeValue(forKey: identifier) { byteCount -= entry.bytes.count }
        }

        mutating func removeOldest() {
            remove(identifiers[oldest])
            oldest += 1
            if oldest * 2 >= identifiers.count {
                identifiers.removeFirst(oldest)
                oldest = 0
            }
        }

        /// Removes the oldest identifiers if their session has expired or was removed.
        mutating func removeEnded(at now: Int) {
            while waitingCount > 0, entries[identifiers[oldest]].map({ $0.end <= now }) ?? true { removeOldest() }
        }
    }

    private let state = Locked(State())
    private let limit: Int
    private let byteLimit: Int

    package init(limit: Int = 1024, byteLimit: Int = 1 << 20) {
        (self.limit, self.byteLimit) = (limit, byteLimit)
    }

    package var count: Int { state.withLock { $0.entries.count } }
    package var byteCount: Int { state.withLock { $0.byteCount } }

    /// Stores a copy of a session until `end`, if the session has an identifier.
    package func store(_ session: OpaquePointer, until end: Int, at now: Int) {
        let identifier = Self.identifier(of: session)
        let count = Int(i2d_SSL_SESSION(session, nil))
        guard !identifier.isEmpty, count > 0, count <= byteLimit else { return }
        let bytes = SecretBytes(count: count) { buffer in
            var cursor = buffer.baseAddress?.assumingMemoryBound(to: UInt8.self)
            i2d_SSL_SESSION(session, &cursor)
        }
        state.withLock { state in
            state.removeEnded(at: now)
            state.remove(identifier)
            while state.waitingCount > 0, state.waitingCount >= limit || state.byteCount + count > byteLimit {
                state.removeOldest()
            }
            state.identifiers.append(identifier)
            state.entries[identifier] = Entry(bytes: bytes, end: end)
            state.byteCount += count
        }
    }

    /// Returns the session for `identifier` if it has not expired at `now`, as a new object that the
    /// caller owns.
    package func session(_ identifier: [UInt8], at now: Int) -> OpaquePointer? {
        let entry = state.withLock { state in
            state.removeEnded(at: now)
            if let entry = state.entries[identifier], entry.end <= now { state.remove(identifier) }
            return state.entries[identifier]
        }
        guard let bytes = entry?.bytes else { return nil }
        return bytes.withBytes { bytes in
            var cursor = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
            return d2i_SSL_SESSION(nil, &cursor, bytes.count)
        }
    }

    /// Removes the session of a failed connection (RFC 5246, 7.2.2).
    func remove(_ session: OpaquePointer) {
        let identifier = Self.identifier(of: session)
        state.withLock { $0.remove(identifier) }
    }

    private static func identifier(of session: OpaquePointer) -> [UInt8] {
        var count: UInt32 = 0
        let bytes = SSL_SESSION_get_id(session, &count)
        return Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
    }
}

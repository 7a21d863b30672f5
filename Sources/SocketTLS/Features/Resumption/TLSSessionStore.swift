internal import SocketBuffers

/// Where clients keep the sessions that they may resume. `TLSSessionMemory` is one; write another to share
/// sessions between processes, or to keep them on disk.
///
/// The sessions have been accepted already: nothing is stored before a positive verdict on the server's
/// certificate. Both functions are called on threads of the library or on the one that calls `startTLS`, from
/// several at a time. They must not block.
public protocol TLSSessionStore: AnyObject, Sendable {
    /// Keeps a session. A server may offer several for one connection: keep each.
    func store(_ session: TLSResumableSession, for key: TLSSessionKey)

    /// Removes a session that was stored for `key`, the latest one if there are several, and returns it; nil
    /// if there is none.
    ///
    /// It comes back by `store(_:for:)` if it may be used again, which only sessions of TLS 1.2 may.
    func take(for key: TLSSessionKey) -> TLSResumableSession?
}

/// The key under which a session is stored. Equal keys mean the same host and port, server name, trust
/// settings, identity, versions and application protocols.
public struct TLSSessionKey: Sendable, Hashable {
    /// A SHA-256 digest, the same in every process: 32 bytes.
    public let digest: [UInt8]

    init(_ scope: ResumptionScope, endpoint: String) {
        digest = DigestFields.digest { fields in
            fields.append(scope.digest)
            fields.append(Array(endpoint.utf8))
        }
    }
}

/// Keeps sessions in the memory of this process.
public final class TLSSessionMemory: TLSSessionStore {
    /// The one that clients use unless their settings name another: `TLSResumption.inMemory`.
    public static let shared = TLSSessionMemory()

    /// The most sessions that are kept for one key: browsers open so many connections to a host.
    private static let limitForKey = 6

    private struct Contents {
        /// The oldest first.
        var sessions: [TLSSessionKey: [TLSResumableSession]] = [:]
        var count = 0
        /// The number of the last use of each key.
        private var lastUses: [TLSSessionKey: UInt64] = [:]
        /// All uses, oldest first, including outdated ones: removing the previous use of a key would take
        /// time proportional to the number of keys.
        private var uses: ArraySlice<(key: TLSSessionKey, number: UInt64)> = []
        private var useCount: UInt64 = 0

        mutating func touch(_ key: TLSSessionKey) {
            useCount += 1
            lastUses[key] = useCount
            uses.append((key, useCount))
            guard uses.count > 2 * lastUses.count + 16 else { return }
            uses = uses.filter { lastUses[$0.key] == $0.number }[...]
        }

        /// The least recently used key.
        mutating func oldestKey() -> TLSSessionKey? {
            while let use = uses.first, lastUses[use.key] != use.number { uses.removeFirst() }
            return uses.first?.key
        }

        mutating func remove(_ key: TLSSessionKey) -> [TLSResumableSession] {
            lastUses[key] = nil
            let removed = sessions.removeValue(forKey: key) ?? []
            count -= removed.count
            return removed
        }
    }

    private let limit: Int
    private let contents = Locked(Contents())

    /// An empty store.
    ///
    /// - Parameter maximumSessions: The most sessions that it keeps: with one more, the sessions of the key
    ///   that was used longest ago go. At least 1.
    public init(maximumSessions: Int = 256) {
        limit = max(1, maximumSessions)
    }

    /// How many sessions it holds, with those whose end has come.
    public var count: Int { contents.withLock { $0.count } }

    /// Keeps a session: the last 6 for each key.
    public func store(_ session: TLSResumableSession, for key: TLSSessionKey) {
        let limit = limit
        // Freed outside of the lock.
        let dropped = contents.withLock { contents in
            contents.touch(key)
            contents.sessions[key, default: []].append(session)
            contents.count += 1
            var dropped: [TLSResumableSession] = []
            if contents.sessions[key, default: []].count > Self.limitForKey {
                dropped = [contents.sessions[key, default: []].removeFirst()]
                contents.count -= 1
            }
            while contents.count > limit, let oldest = contents.oldestKey() {
                if oldest == key {
                    dropped.append(contents.sessions[key, default: []].removeFirst())
                    contents.count -= 1
                } else {
                    dropped += contents.remove(oldest)
                }
            }
            return dropped
        }
        withExtendedLifetime(dropped) {}
    }

    /// Removes the latest usable session for `key`, and returns it.
    public func take(for key: TLSSessionKey) -> TLSResumableSession? {
        let sessions = contents.withLock { contents -> [TLSResumableSession] in
            guard contents.sessions[key] != nil else { return [] }
            contents.touch(key)
            var taken: [TLSResumableSession] = []
            while let last = contents.sessions[key, default: []].popLast() {
                contents.count -= 1
                taken.append(last)
                if last.isUsable { break }
            }
            if contents.sessions[key, default: []].isEmpty { _ = contents.remove(key) }
            return taken
        }
        return sessions.last.flatMap { $0.isUsable ? $0 : nil }
    }

    /// Forgets all sessions.
    public func removeAll() {
        let old = contents.withLock { contents in
            defer { contents = Contents() }
            return contents
        }
        withExtendedLifetime(old) {}
    }
}

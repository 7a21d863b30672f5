internal import SocketBuffers

/// A store in which clients keep sessions that they can resume. `TLSInMemorySessionStore` is an
/// implementation; write another one to share sessions between processes or to keep them on disk.
///
/// Sessions are stored only after a positive verdict on the server's certificate. Both methods are called
/// concurrently, on threads of the library or on a thread that calls `startTLS`. They must not block.
public protocol TLSSessionStore: AnyObject, Sendable {
    /// Stores a session. A server may offer several sessions for one connection: store all of them.
    func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey)

    /// Removes the latest session stored for `key` and returns it. Returns `nil` if no session is stored for
    /// `key`.
    ///
    /// The session is stored again with `store(_:for:)` if it can be reused, which is possible only with
    /// TLS 1.2.
    func take(for key: TLSSessionStoreKey) -> TLSResumableSession?
}

/// The key under which a session is stored. Equal keys mean the same host and port, server name, trust
/// settings, identity, versions and application protocols.
public struct TLSSessionStoreKey: Sendable, Hashable {
    /// A 32-byte SHA-256 digest, which is the same in every process.
    public let digest: [UInt8]

    init(_ scope: ResumptionScope, endpoint: String) {
        digest = DigestFields.digest { fields in
            fields.append(scope.digest)
            fields.append(Array(endpoint.utf8))
        }
    }
}

/// A store that keeps sessions in the memory of this process.
public final class TLSInMemorySessionStore: TLSSessionStore {
    /// The store that clients use by default: `TLSResumption.inMemory`.
    public static let shared = TLSInMemorySessionStore()

    /// The maximum number of sessions for one key: browsers open this many connections to a host.
    private static let limitForKey = 6

    private struct Contents {
        /// The sessions for each key, oldest first.
        var sessions: [TLSSessionStoreKey: [TLSResumableSession]] = [:]
        var count = 0
        private var lastUses: [TLSSessionStoreKey: UInt64] = [:]
        /// All uses, oldest first, including outdated ones: removing the previous use of a key would take
        /// time proportional to the number of keys.
        private var uses: ArraySlice<(key: TLSSessionStoreKey, number: UInt64)> = []
        private var useCount: UInt64 = 0

        mutating func touch(_ key: TLSSessionStoreKey) {
            useCount += 1
            lastUses[key] = useCount
            uses.append((key, useCount))
            guard uses.count > 2 * lastUses.count + 16 else { return }
            uses = uses.filter { lastUses[$0.key] == $0.number }[...]
        }

        /// The least recently used key.
        mutating func oldestKey() -> TLSSessionStoreKey? {
            while let use = uses.first, lastUses[use.key] != use.number { uses.removeFirst() }
            return uses.first?.key
        }

        mutating func remove(_ key: TLSSessionStoreKey) -> [TLSResumableSession] {
            lastUses[key] = nil
            let removed = sessions.removeValue(forKey: key) ?? []
            count -= removed.count
            return removed
        }
    }

    private let limit: Int
    private let contents = Locked(Contents())

    /// Creates an empty store.
    ///
    /// - Parameter maximumSessions: The maximum number of sessions, at least 1. If it is exceeded, the
    ///   sessions of the least recently used key are removed.
    public init(maximumSessions: Int = 256) {
        limit = maximumSessions.clamped(to: 1...)
    }

    /// The number of stored sessions, including expired sessions.
    public var count: Int { contents.withLock { $0.count } }

    /// Stores a session. Only the last 6 sessions for each key are kept.
    public func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) {
        let limit = limit
        // Released outside the lock.
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
    public func take(for key: TLSSessionStoreKey) -> TLSResumableSession? {
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

    /// Removes all sessions.
    public func removeAll() {
        let old = contents.withLock { contents in
            defer { contents = Contents() }
            return contents
        }
        withExtendedLifetime(old) {}
    }
}

/// Which sessions a client resumes, and where it stores the sessions that servers offer.
public enum TLSResumption: Sendable, Hashable {
    /// Disables resumption.
    case none
    /// Uses the sessions in this process's memory: `TLSInMemorySessionStore.shared`.
    case inMemory
    /// Uses the sessions in a store. Two settings are equal only if they contain the same object.
    case store(any TLSSessionStore)
    /// Uses the session from another connection (`TLSSession.resumable`), such as an FTP control connection
    /// if its server requires the same session for each data connection. No store is used.
    ///
    /// The session must be from a connection with the same server name and the same settings, but may be
    /// from another port. Otherwise `startTLS` fails with `invalidSettings`. If the session is no longer
    /// usable, or the server rejects it, a full handshake is performed.
    case session(TLSResumableSession)

    /// Returns whether both values are the same case and, for stores and sessions, contain the same
    /// object.
    public static func == (left: TLSResumption, right: TLSResumption) -> Bool {
        switch (left, right) {
        case (.none, .none), (.inMemory, .inMemory): true
        case (.store(let left), .store(let right)): left === right
        case (.session(let left), .session(let right)): left === right
        default: false
        }
    }

    /// Hashes the case, and the identity of the store or session.
    public func hash(into hasher: inout Hasher) {
        switch self {
        case .none: hasher.combine(0)
        case .inMemory: hasher.combine(1)
        case .store(let store): hasher.combine(ObjectIdentifier(store))
        case .session(let session): hasher.combine(ObjectIdentifier(session))
        }
    }
}

internal import SocketBuffers

/// The most recently used contexts. Their number is limited, because any number of different settings may be
/// in use.
///
/// Session ticket keys live as long as their context. Contexts that issue tickets are therefore counted
/// separately, and are evicted only by other contexts that issue tickets.
package final class ContextCache: Sendable {
    package static let shared = ContextCache(limit: 64)

    private struct Entry {
        let context: TLSContext
        var lastUse: UInt64
    }

    private struct Contents {
        var entries: [ContextKey: Entry] = [:]
        var uses: UInt64 = 0
    }

    private let limit: Int
    private let contents = Locked(Contents())

    /// - Parameter limit: The maximum number of contexts that issue tickets. The same limit applies
    ///   separately to contexts that do not issue tickets.
    package init(limit: Int) {
        self.limit = limit
    }

    /// Returns the cached context for `key`, or a new one. If two threads build it concurrently, the first to
    /// finish wins.
    fileprivate func context(for key: ContextKey) throws(TLSError) -> TLSContext {
        if let known = contents.withLock({ Self.find(key, in: &$0) }) { return known }
        let built = try TLSContext(key)
        let limit = limit
        return contents.withLock { contents in
            if let known = Self.find(key, in: &contents) { return known }
            Self.makeRoom(for: key, in: &contents, limit: limit)
            contents.entries[key] = Entry(context: built, lastUse: contents.uses)
            return built
        }
    }

    private static func find(_ key: ContextKey, in contents: inout Contents) -> TLSContext? {
        contents.uses += 1
        guard let place = contents.entries.index(forKey: key) else { return nil }
        contents.entries.values[place].lastUse = contents.uses
        return contents.entries.values[place].context
    }

    private static func makeRoom(for key: ContextKey, in contents: inout Contents, limit: Int) {
        let rivals = contents.entries.lazy.filter { $0.key.issuesTickets == key.issuesTickets }
        guard rivals.count >= limit, let oldest = rivals.min(by: { $0.value.lastUse < $1.value.lastUse }) else { return }
        contents.entries[oldest.key] = nil
    }
}

extension TLSContext {
    /// Returns the context for `settings`: a cached one, or a new one.
    ///
    /// Building a context reads the trusted roots, so never call this on an event loop. The system's roots
    /// are read once per process unless they change, which takes 4 to 28 ms. Throws `invalidSettings`,
    /// `invalidCertificate` or `internalError`.
    package static func context(
        for settings: TLSSettingValues, over transport: TLSTransport = .stream, in cache: ContextCache = .shared
    ) throws(TLSError) -> TLSContext {
        try settings.validate(over: transport)
        return try cache.context(for: ContextKey(settings, over: transport))
    }

    package static func context<Side>(
        for settings: TLSSettings<Side>, over transport: TLSTransport = .stream, in cache: ContextCache = .shared
    ) throws(TLSError) -> TLSContext {
        try context(for: settings.values, over: transport, in: cache)
    }
}

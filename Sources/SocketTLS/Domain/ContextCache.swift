internal import SocketBuffers

/// The contexts that were used last. Their number is limited, because settings may come from anywhere.
///
/// The keys of session tickets go with their context. So contexts that issue tickets count separately, and
/// only another one of them pushes one out.
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

    /// - Parameter limit: The most contexts that issue tickets, and the most that issue none.
    package init(limit: Int) {
        self.limit = limit
    }

    /// The cached context for `key`, or a new one. Two threads may make it at once; the first to finish wins.
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
    /// The context for `settings`: an existing one, or a new one.
    ///
    /// Building one reads the roots (once, 4 to 28 ms for the system's): never call this on an event loop.
    /// Throws `invalidSettings`, `invalidCertificate` or `internalError`.
    package static func context(
        for settings: TLSSettingValues, over transport: TLSTransport = .stream, in cache: ContextCache = .shared
    ) throws(TLSError) -> TLSContext {
        try settings.validate(over: transport)
        return try cache.context(for: ContextKey(settings, over: transport))
    }

    /// The context for `settings`: see `context(for:in:)` above.
    package static func context<Side>(
        for settings: TLSSettings<Side>, over transport: TLSTransport = .stream, in cache: ContextCache = .shared
    ) throws(TLSError) -> TLSContext {
        try context(for: settings.values, over: transport, in: cache)
    }
}

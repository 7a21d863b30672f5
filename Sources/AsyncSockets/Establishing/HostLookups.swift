internal import SocketCore

/// The host lookups of one socket's operations. A result is kept only while an operation needs it. Confined
/// to the turn.
struct HostLookups {
    private struct Entry {
        var users = 1
        var lookup: Resolver.Lookup?
        /// `nil` while the lookup is in progress.
        var answer: Resolver.Answer?
    }

    private var entries: [HostQuery: Entry] = [:]

    /// Starts a lookup for an operation, or shares a running lookup of the same host. The lookup runs
    /// outside the loop.
    ///
    /// - Parameters:
    ///   - query: The host to look up.
    ///   - resolver: The resolver to use.
    ///   - deliver: Receives the result on any thread, unless every operation that needs it finishes first.
    mutating func begin(
        _ query: HostQuery, asking resolver: Resolver, _ deliver: @escaping @Sendable (Resolver.Answer) -> Void
    ) {
        if entries[query] != nil {
            entries[query]?.users += 1
            return
        }
        entries[query] = Entry()
        entries[query]?.lookup = resolver.resolve(query, completion: deliver)
    }

    mutating func note(_ answer: Resolver.Answer, to query: HostQuery) {
        entries[query]?.answer = answer
    }

    func answer(to query: HostQuery) -> Resolver.Answer? { entries[query]?.answer }

    /// Releases the lookup of a finished operation.
    mutating func end(_ query: HostQuery?) {
        guard let query, var entry = entries[query] else { return }
        entry.users -= 1
        if entry.users == 0 {
            entry.lookup?.cancel()
            entries[query] = nil
        } else {
            entries[query] = entry
        }
    }
}

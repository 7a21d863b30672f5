internal import SocketCore

/// The hosts that the operations of one socket wait for. An answer is kept only as long as an operation has
/// a use for it. Confined to the turn.
struct HostLookups {
    private struct Entry {
        var users = 1
        var lookup: Resolver.Lookup?
        /// Nil: on its way.
        var answer: Resolver.Answer?
    }

    private var entries: [HostQuery: Entry] = [:]

    /// An operation waits for a host. The lookup runs off the loop.
    ///
    /// - Parameter deliver: Gets the answer, on any thread, unless all users have gone before.
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

    /// An operation is over.
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

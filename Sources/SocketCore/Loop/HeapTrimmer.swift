// Rules of giving memory back:
//  1. glibc keeps what is freed below the end of each of its arenas, and the loops' threads come and go
//     through all of them: without this, each burst of connections leaves the memory of its greatest moment
//     behind, and the next one uses other arenas.
//  2. A loop asks when an eighth of those that were registered at its busiest time have gone, and at least
//     `LoopTable.leastDeparture`: connections that come and go in equal numbers ask for nothing. It is also
//     asked for when connections have ended with `bytesForTrim` waiting in memory: a few peers that never
//     read leave as much behind.
//  3. It is done on a queue of its own, a second after it was asked for, and at most once in five, and in a
//     hundred times as long as it last took: what leaves together is given back together. Meanwhile no loop
//     waits, but for an arena that it allocates in at that moment.
//  4. Only what is free is given back. M_ARENA_MAX and its like (mallopt(3)) would change the whole program,
//     and are its own to set.

internal import CLinux
internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// Gives memory that bursts of connections have left behind back to the system (malloc_trim(3)).
package final class HeapTrimmer: Sendable {
    package static let shared = HeapTrimmer()

    private struct State {
        var isAskedFor = false
        var last: Deadline?
        var count = 0
        var longestSeconds = 0.0
        var lastSeconds = 0.0
    }

    private let state = Locked(State())
    private let queue = DispatchQueue(label: "AsyncSockets.HeapTrimmer", qos: .utility)

    private let freed = Atomic(0)

    private static let bytesForTrim = 16 << 20
    private static let delay = 1.0
    private static let interval = 5.0

    private init() {}

    /// How often it was done.
    package var count: Int { state.withLock { $0.count } }

    /// The longest time that it has taken.
    package var longestSeconds: Double { state.withLock { $0.longestSeconds } }

    /// So many bytes that waited have gone with their connection.
    package func noteFreed(_ count: Int) {
        guard freed.add(count, ordering: .relaxed).newValue >= Self.bytesForTrim else { return }
        freed.store(0, ordering: .relaxed)
        ask()
    }

    /// Has memory given back soon.
    func ask() {
        let wait = state.withLock { state -> Double? in
            guard !state.isAskedFor else { return nil }
            state.isAskedFor = true
            let interval = max(Self.interval, 100 * state.lastSeconds)
            let pause = state.last.map { interval - Deadline.now.seconds(since: $0) } ?? 0
            return max(Self.delay, pause)
        }
        guard let wait else { return }
        queue.asyncAfter(deadline: .now() + wait) { self.trim() }
    }

    private func trim() {
        state.withLock { $0.isAskedFor = false }
        let start = Deadline.now
        CLinux_give_free_memory_back()
        let end = Deadline.now
        state.withLock { state in
            state.last = end
            state.count += 1
            state.lastSeconds = end.seconds(since: start)
            state.longestSeconds = max(state.longestSeconds, end.seconds(since: start))
        }
    }
}

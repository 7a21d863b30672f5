// Rules of trimming the heap:
//  1. glibc keeps freed memory below the end of each of its arenas, and the threads of the loops use all of
//     them in turn. So each burst of connections would leave its memory behind, and the next would use other
//     arenas.
//  2. A loop asks for a trim when an eighth of the registrations of its busiest time have left, and at least
//     `LoopTable.leastDeparture`. Connections that come and go in equal numbers ask for none. Connections
//     that end with `bytesForTrim` waiting in memory ask for one too: a few peers that never read leave as
//     much.
//  3. A queue of its own trims a second after the request, so that what is freed together is returned
//     together; at most once in five seconds, and once in a hundred times as long as the last trim took. A
//     loop waits only if it allocates in the very arena that is being trimmed.
//  4. The last connections of a burst may end after the trim, and be too few to ask for another one. A
//     connection also frees its memory a little later than its registration ends. So each trim that was asked
//     for is followed by a second one after that pause.
//  5. malloc_trim shrinks only the main arena. In other arenas free memory at the end stays, including what
//     malloc_trim has just merged into it. glibc returns it when it frees a chunk that is 64 KiB long or
//     longer after merging (`heap_trim` in arena.c), except for M_TRIM_THRESHOLD bytes, which grow with the
//     largest block that the program has freed. So a loop keeps blocks of its thread's arena here when its
//     registrations have grown by `LoopTable.leastDeparture`, and when it asks for a trim: one for each of
//     the two trims, which free them. Nothing is ever written to them.
//  6. Only free memory is returned. M_ARENA_MAX and its like (mallopt(3)) change the whole program, and are
//     for the program to set.

internal import CLinux
internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// Returns the memory of past connections to the system (malloc_trim(3)).
package final class HeapTrimmer: Sendable {
    package static let shared = HeapTrimmer()

    private struct State {
        var isAskedFor = false
        var last: Deadline?
        var count = 0
        var longestSeconds = 0.0
        var lastSeconds = 0.0
    }

    /// By rule 5: for the next trim, and for the one after it.
    private struct Blocks {
        var next: [UnsafeMutableRawPointer] = []
        var later: [UnsafeMutableRawPointer] = []
    }

    private let state = Locked(State())
    private let blocks = Locked(Blocks())
    private let queue = DispatchQueue(label: "AsyncSockets.HeapTrimmer", qos: .utility)

    private let freed = Atomic(0)

    private static let bytesForTrim = 16 << 20
    /// More than FASTBIN_CONSOLIDATION_THRESHOLD, and less than M_MMAP_THRESHOLD: longer blocks are in no
    /// arena.
    private static let blockSize = 72 << 10
    private static let blockLimit = 256
    private static let delay = 1.0
    private static let interval = 5.0

    private init() {}

    /// The number of trims.
    package var count: Int { state.withLock { $0.count } }

    /// How long the longest trim took.
    package var longestSeconds: Double { state.withLock { $0.longestSeconds } }

    /// The number of blocks that wait for the next trim.
    package var blockCount: Int { blocks.withLock { $0.next.count } }

    /// Keeps blocks of the calling thread's arena for the next two trims.
    package func keepBlocks() {
        guard blockCount < Self.blockLimit else { return }
        let (first, second) = (Self.block(), Self.block())
        blocks.withLock { blocks in
            blocks.next.append(first)
            blocks.later.append(second)
        }
    }

    private static func block() -> UnsafeMutableRawPointer { .allocate(byteCount: blockSize, alignment: 16) }

    /// `count` bytes that waited to be sent were freed with their connection.
    package func noteFreed(_ count: Int) {
        guard freed.add(count, ordering: .relaxed).newValue >= Self.bytesForTrim else { return }
        freed.store(0, ordering: .relaxed)
        ask()
    }

    /// Asks for a trim.
    package func ask() {
        let wait = state.withLock { state -> Double? in
            guard !state.isAskedFor else { return nil }
            state.isAskedFor = true
            let interval = Self.pause(after: state.lastSeconds)
            let pause = state.last.map { interval - Deadline.now.seconds(since: $0) } ?? 0
            return max(Self.delay, pause)
        }
        guard let wait else { return }
        queue.asyncAfter(deadline: .now() + wait) {
            self.trim()
            let pause = self.state.withLock { Self.pause(after: $0.lastSeconds) }
            self.queue.asyncAfter(deadline: .now() + pause) { self.trimAgain() }
        }
    }

    /// The seconds between two trims.
    private static func pause(after seconds: Double) -> Double { max(interval, 100 * seconds) }

    /// By rule 4.
    private func trimAgain() {
        guard !state.withLock({ $0.isAskedFor }) else { return }
        trim()
    }

    private func takeBlocks() -> [UnsafeMutableRawPointer] {
        blocks.withLock { blocks in
            defer { blocks = Blocks(next: blocks.later) }
            return blocks.next
        }
    }

    private func trim() {
        state.withLock { $0.isAskedFor = false }
        let start = Deadline.now
        CLinux_give_free_memory_back()
        for block in takeBlocks() { block.deallocate() }
        let end = Deadline.now
        state.withLock { state in
            state.last = end
            state.count += 1
            state.lastSeconds = end.seconds(since: start)
            state.longestSeconds = max(state.longestSeconds, end.seconds(since: start))
        }
    }
}

// Rules of trimming the heap:
//  1. glibc keeps freed memory that is not at the end of an arena, and over time the threads of the loops
//     use all arenas. Without trimming, each burst of connections would leave free memory in its arenas, and
//     the next burst would allocate from different arenas.
//  2. A loop requests a trim when the number of its registrations has dropped by an eighth from its peak,
//     and by at least `LoopTable.leastDeparture`. A steady turnover of connections causes no trims. A trim
//     is also requested after closed connections have freed a total of `bytesForTrim` buffered bytes,
//     because a few peers that never read can use as much memory.
//  3. A dedicated queue trims one second after the request, so that memory freed together is returned
//     together. The interval between trims is at least five seconds, and at least a hundred times as long as
//     the last trim took. A loop blocks only if it allocates from the arena that is being trimmed.
//  4. The last connections of a burst may close after the trim, and may be too few to request another trim.
//     A connection also frees its memory slightly later than its registration. Each requested trim is
//     therefore followed by a second trim after the interval of rule 3.
//  5. malloc_trim shrinks only the main arena. Other arenas keep the free memory at their end, including
//     memory that malloc_trim has just merged into it. glibc returns this memory when it frees a chunk of at
//     least 64 KiB after merging (`heap_trim` in arena.c), except for M_TRIM_THRESHOLD bytes, a limit that
//     grows with the largest block freed by the program. A loop therefore allocates blocks in its thread's
//     arena when the number of its registrations has grown by `LoopTable.leastDeparture`, and when it
//     requests a trim. Each time, it allocates two blocks, and each of the next two trims frees one of them.
//     The blocks are never written to.
//  6. Only free memory is returned. Settings such as M_ARENA_MAX (mallopt(3)) affect the whole program, and
//     are left to the program.

internal import CLinux
internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// Returns the memory of closed connections to the system (malloc_trim(3)).
package final class HeapTrimmer: Sendable {
    package static let shared = HeapTrimmer()

    private struct State {
        var isAskedFor = false
        var last: Deadline?
        var count = 0
        var longestSeconds = 0.0
        var lastSeconds = 0.0
    }

    /// The blocks of rule 5, for the next trim and for the trim after that.
    private struct Blocks {
        var next: [UnsafeMutableRawPointer] = []
        var later: [UnsafeMutableRawPointer] = []
    }

    private let state = Locked(State())
    private let blocks = Locked(Blocks())
    private let queue = DispatchQueue(label: "AsyncSockets.HeapTrimmer", qos: .utility)

    private let freed = Atomic(0)

    private static let bytesForTrim = 16 << 20
    /// More than FASTBIN_CONSOLIDATION_THRESHOLD and less than M_MMAP_THRESHOLD, above which blocks do not
    /// belong to an arena.
    private static let blockSize = 72 << 10
    private static let blockLimit = 256
    private static let delay = 1.0
    private static let interval = 5.0

    private init() {}

    package var count: Int { state.withLock { $0.count } }

    package var longestSeconds: Double { state.withLock { $0.longestSeconds } }

    package var blockCount: Int { blocks.withLock { $0.next.count } }

    /// Allocates two blocks in the calling thread's arena, which the next two trims free.
    package func keepBlocks() {
        guard blockCount < Self.blockLimit else { return }
        let (first, second) = (Self.block(), Self.block())
        blocks.withLock { blocks in
            blocks.next.append(first)
            blocks.later.append(second)
        }
    }

    private static func block() -> UnsafeMutableRawPointer { .allocate(byteCount: blockSize, alignment: 16) }

    /// Records that a closed connection has freed `count` buffered bytes.
    package func noteFreed(_ count: Int) {
        guard freed.add(count, ordering: .relaxed).newValue >= Self.bytesForTrim else { return }
        freed.store(0, ordering: .relaxed)
        ask()
    }

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

    /// Returns the minimum interval between two trims, in seconds.
    private static func pause(after seconds: Double) -> Double { max(interval, 100 * seconds) }

    /// Performs the second trim of rule 4.
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

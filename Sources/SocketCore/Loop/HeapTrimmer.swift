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
//  5. malloc_trim returns the free end of the main arena alone. In other arenas what it merges with the end
//     stays too. A large block that is freed there returns it (`heap_trim` in glibc's
//     arena.c). So a loop whose connections become more keeps a block of its thread's arena here, one for
//     every `LoopTable.growthPerBlock`, and each trim frees these blocks. The kernel gives such a block no
//     memory but the page of its header.
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

    private let state = Locked(State())
    /// By rule 5.
    private let blocks = Locked<[UnsafeMutableRawPointer]>([])
    private let queue = DispatchQueue(label: "AsyncSockets.HeapTrimmer", qos: .utility)

    private let freed = Atomic(0)

    private static let bytesForTrim = 16 << 20
    /// glibc merges what is free in an arena, and returns its end, whenever it frees 64 KiB or more
    /// (FASTBIN_CONSOLIDATION_THRESHOLD); blocks of 128 KiB or more are in no arena (M_MMAP_THRESHOLD).
    private static let blockSize = 72 << 10
    private static let delay = 1.0
    private static let interval = 5.0

    private init() {}

    /// The number of trims.
    package var count: Int { state.withLock { $0.count } }

    /// How long the longest trim took.
    package var longestSeconds: Double { state.withLock { $0.longestSeconds } }

    /// Keeps a block of the calling thread's arena until the next trim.
    package func keepBlock() {
        let block = UnsafeMutableRawPointer.allocate(byteCount: Self.blockSize, alignment: 16)
        blocks.withLock { $0.append(block) }
    }

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
            defer { blocks = [] }
            return blocks
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

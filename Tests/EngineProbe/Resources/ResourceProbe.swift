internal import AsyncSockets
internal import CLinux
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// Compares the resources of the process before and after many connections.
///
/// The counts are for the whole process, so this runs in a process that does nothing else.
enum ResourceProbe {
    /// Uses the library and releases everything before it returns. Called many times.
    typealias Round = @Sendable (_ number: Int) async throws -> Void

    /// Rounds until caches, tables and thread pools have reached their final size.
    private static let warmUp = 100
    private static let rounds = 100
    /// The allowed growth of the heap per round: tables grow in steps. The connections of one round need
    /// several times as much.
    private static let bytesPerRound = 1000
    /// The allowed number of additional blocks of at least 128 KiB, such as spare blocks of a pool.
    private static let largeBlocks = 8
    /// Disables the per-thread heap caches, because their freed memory would count as used (up to 200 KB).
    /// Keeps large blocks out of the heap.
    private static let tunables =
        "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0:glibc.malloc.mmap_threshold=131072"

    static func run(_ name: String) throws {
        guard getenv("GLIBC_TUNABLES") != nil else {
            setenv("GLIBC_TUNABLES", tunables, 1)
            execv("/proc/self/exe", CommandLine.unsafeArgv)
            throw ProbeFailure(description: "execv: \(errno)")
        }
        try waitForTask {
            let scenario = try ResourceScenarios.named(name)
            try await compare(scenario.round)
            withExtendedLifetime(scenario) {}
        }
    }

    private static func compare(_ round: Round) async throws {
        fillPool()
        for number in 0..<warmUp { try await round(number) }
        let before = try await restingUsage()
        for number in warmUp..<warmUp + rounds {
            try await round(number)
            // More blocks than the pool keeps.
            fillPool()
        }
        let after = Locked(Usage())
        do {
            try await eventually("as much is in use as before") {
                let now = try Usage.now
                after.withLock { $0 = now }
                return now.matches(before)
            }
        } catch {
            throw ProbeFailure(description: "before: \(before)\nafter:  \(after.withLock { $0 })")
        }
        print("before: \(before)\nafter:  \(after.withLock { $0 })")
    }

    /// Waits until the counts are stable. Heap bytes may vary.
    private static func restingUsage() async throws -> Usage {
        let state = Locked((last: Usage(), sameCount: 0))
        try await eventually("the process is at rest") {
            var now = try Usage.now
            return state.withLock { state in
                swap(&state.last, &now)
                (now.heapBytes, now.largeBlocks) = (state.last.heapBytes, state.last.largeBlocks)
                state.sameCount = now == state.last ? state.sameCount + 1 : 0
                return state.sameCount == 200
            }
        }
        return state.withLock { $0.last }
    }

    /// Fills the pool. If a block is leaked later, the pool has fewer spare blocks.
    private static func fillPool() {
        let blocks = (0..<64).map { _ in BufferPool.shared.take() }
        for block in blocks { BufferPool.shared.give(block) }
    }

    struct Usage: Equatable, CustomStringConvertible {
        var descriptors = 0
        var registrations = 0
        var spareBlocks = 0
        var keptBuffers = 0
        var largeBlocks = 0
        var heapBytes = 0

        static var now: Usage {
            get throws {
                var usage = Usage()
                usage.descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
                for _ in 0..<SocketEventLoop.usableProcessors {
                    usage.registrations += try SocketEventLoop.next().registrationCount
                }
                usage.spareBlocks = BufferPool.shared.spareCount
                usage.keptBuffers = KeptBuffers.shared.keptCount
                let heap = mallinfo2()
                (usage.largeBlocks, usage.heapBytes) = (Int(heap.hblks), Int(heap.uordblks))
                return usage
            }
        }

        /// Whether this is no more than `before`, within the allowed growth.
        func matches(_ before: Usage) -> Bool {
            descriptors == before.descriptors && registrations == before.registrations && spareBlocks == before.spareBlocks
                && keptBuffers == before.keptBuffers && largeBlocks <= before.largeBlocks + ResourceProbe.largeBlocks
                && heapBytes <= before.heapBytes + rounds * bytesPerRound
        }

        var description: String {
            "\(descriptors) descriptors, \(registrations) registrations, \(spareBlocks) spare blocks, "
                + "\(keptBuffers) kept buffers, \(largeBlocks) large blocks, \(heapBytes) bytes"
        }
    }
}

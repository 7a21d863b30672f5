internal import Glibc
internal import SocketCore
internal import Synchronization

/// The progress of a connection's oldest operations, readable by any thread at any time.
///
/// A busy connection writes it for each message, so it uses no lock. A reader that overlaps with a write
/// tries again.
struct ProgressBoard: ~Copyable, Sendable {
    struct Snapshot {
        var read: OperationProgress?
        var write: OperationProgress?
        /// The number of bytes that neither the kernel nor TLS has accepted yet.
        var waitingByteCount = 0
    }

    private struct Slot: ~Copyable, Sendable {
        private let tag = Atomic(0)
        /// Negative if no operation is queued.
        private let bytes = Atomic(-1)
        /// Negative if unknown.
        private let total = Atomic(-1)

        func write(_ progress: OperationProgress?) {
            guard let progress else { return bytes.store(-1, ordering: .releasing) }
            tag.store(progress.tag, ordering: .releasing)
            bytes.store(progress.bytesDone, ordering: .releasing)
            total.store(progress.total ?? -1, ordering: .releasing)
        }

        var progress: OperationProgress? {
            let (bytes, total) = (bytes.load(ordering: .acquiring), total.load(ordering: .acquiring))
            guard bytes >= 0 else { return nil }
            return OperationProgress(tag: tag.load(ordering: .acquiring), bytesDone: bytes, total: total < 0 ? nil : total)
        }
    }

    /// Odd while the values are being written. A reader that sees a new value also sees the new version.
    private let version = Atomic<UInt>(0)
    private let read = Slot()
    private let write = Slot()
    private let waitingByteCount = Atomic(0)

    /// Inside the turn only.
    func publish(_ snapshot: Snapshot) {
        let version = version.load(ordering: .relaxed)
        self.version.store(version &+ 1, ordering: .relaxed)
        read.write(snapshot.read)
        write.write(snapshot.write)
        waitingByteCount.store(snapshot.waitingByteCount, ordering: .releasing)
        self.version.store(version &+ 2, ordering: .releasing)
    }

    /// A consistent copy of the values. Callable from any thread.
    var snapshot: Snapshot {
        while true {
            let before = version.load(ordering: .acquiring)
            let snapshot = Snapshot(
                read: read.progress, write: write.progress,
                waitingByteCount: waitingByteCount.load(ordering: .acquiring))
            if before.isMultiple(of: 2), version.load(ordering: .relaxed) == before { return snapshot }
            // A write takes a few nanoseconds unless its thread was preempted.
            sched_yield()
        }
    }
}

internal import Glibc
internal import SocketCore
internal import Synchronization

/// How far the oldest operations of a connection have come, for anyone to read at any time.
///
/// A busy connection writes it for each message, so there is no lock. A reader that meets a write reads
/// again.
struct ProgressBoard: ~Copyable, Sendable {
    struct Snapshot {
        var read: OperationProgress?
        var write: OperationProgress?
        /// Bytes that neither the kernel nor TLS has taken yet.
        var waitingByteCount = 0
    }

    private struct Slot: ~Copyable, Sendable {
        private let tag = Atomic(0)
        /// Negative: there is no operation.
        private let bytes = Atomic(-1)
        /// Negative: not known.
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

    /// Odd while the numbers change. A reader that has seen a new number sees the new version, too.
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

    /// Anywhere: the numbers as of the last complete write.
    var snapshot: Snapshot {
        while true {
            let before = version.load(ordering: .acquiring)
            let snapshot = Snapshot(
                read: read.progress, write: write.progress,
                waitingByteCount: waitingByteCount.load(ordering: .acquiring))
            if before.isMultiple(of: 2), version.load(ordering: .relaxed) == before { return snapshot }
            // A write takes a few nanoseconds, unless its thread has lost the processor.
            sched_yield()
        }
    }
}

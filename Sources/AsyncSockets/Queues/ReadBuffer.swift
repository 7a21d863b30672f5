// Rules for the buffer:
//  1. A read delivers a view of the buffer's memory without copying it. The view is copy-on-write: changing
//     it does not affect the buffer.
//  2. `Data` copies its bytes before a change if its memory has a second owner. The buffer is that owner:
//     each view is a prefix of an anchor, a `Data` from the same offset to the end of the block. The buffer
//     keeps the anchor as long as it uses the block. A view created separately for each read would have only
//     one owner.
//  3. Each offset at which reads store their bytes has one anchor. If there are too many anchors, the buffer
//     moves to a new block. The old block then belongs only to its views, which may change it in place.
//  4. Memory without bytes from a read is never exposed: gaps are filled with zeros.

public import FoundationEssentials
internal import Glibc
internal import SocketBuffers

/// Memory of your own for reads to fill, so that many reads need only one allocation.
///
/// Pass the buffer to `readData(…buffer:bufferOffset:…)`. The bytes are stored at the offset, and the
/// buffer grows if they do not fit. The `data` passed to `socket(_:didRead:withTag:)` is a view of this
/// memory. It is delivered without a copy, and its contents change when a later read fills the same place.
/// Take what you need before you queue that read, and do not use the same place for two reads at the same
/// time. You may change that `data`: as with any other `Data`, this makes a copy first and does not affect
/// the buffer.
public final class ReadBuffer: Sendable {
    private let contents: Locked<Contents>

    fileprivate struct Contents {
        var block: Block
        /// The minimum size of the first allocation.
        let reserved: Int
        var count = 0
        /// The anchors (rule 2) by offset.
        var anchors: [Int: Data] = [:]
    }

    /// Creates an empty buffer.
    ///
    /// - Parameter capacity: The number of bytes to allocate for the first read, so that the buffer need not
    ///   grow soon afterwards. Values above 64 MiB are treated as 64 MiB and negative values as zero. Beyond
    ///   that, the buffer grows as bytes arrive.
    public init(capacity: Int = 0) {
        contents = Locked(Contents(block: Block(capacity: 0), reserved: min(max(capacity, 0), Self.largestReservation)))
    }

    /// Limited because the caller chooses the capacity, and a failed allocation terminates the process.
    private static let largestReservation = 64 << 20

    /// The number of bytes in the buffer, up to the end of the last stored bytes.
    public var count: Int { contents.withLock { $0.count } }

    /// A copy of all bytes in the buffer.
    public var data: Data {
        contents.withLock { Data(bytes: $0.block.start, count: $0.count) }
    }

    /// Removes all bytes but keeps the memory.
    public func removeAll() {
        contents.withLock { $0.count = 0 }
    }

    /// Stores `bytes` at `offset`, filling any gap before it with zeros.
    func store(_ bytes: UnsafeRawBufferPointer, at offset: Int) {
        guard let source = bytes.baseAddress else { return }
        contents.withLock { contents in
            contents.makeRoom(upTo: offset + bytes.count)
            memcpy(contents.block.start + offset, source, bytes.count)
            contents.count = max(contents.count, offset + bytes.count)
        }
    }

    /// Returns a view of `count` bytes starting at `offset`. The view keeps the memory alive.
    func view(at offset: Int, count: Int) -> Data {
        guard count > 0 else { return Data() }
        return contents.withLock { $0.view(at: offset, count: count) }
    }
}

extension ReadBuffer.Contents {
    mutating func makeRoom(upTo end: Int) {
        if end > block.capacity { move(to: ReadBuffer.Block(capacity: max(end, block.capacity * 2, reserved)), keeping: count) }
        if end > count { memset(block.start + count, 0, end - count) }
    }

    mutating func view(at offset: Int, count length: Int) -> Data {
        if let anchor = anchors[offset] { return anchor.prefix(length) }
        if anchors.count >= anchorLimit {
            // `removeAll()` may already have dropped the bytes of this read, but they still belong to it.
            move(to: ReadBuffer.Block(capacity: block.capacity), keeping: max(count, offset + length))
        }
        let block = block
        let anchor = Data(
            bytesNoCopy: block.start + offset, count: block.capacity - offset,
            deallocator: .custom { _, _ in withExtendedLifetime(block) {} })
        anchors[offset] = anchor
        return anchor.prefix(length)
    }

    /// Large enough to make moving cheap: a move copies at most 1 KiB for each read that added an anchor.
    private var anchorLimit: Int { 16 + block.capacity / 1024 }

    /// Views of the old block keep it alive.
    private mutating func move(to other: ReadBuffer.Block, keeping count: Int) {
        memcpy(other.start, block.start, count)
        block = other
        anchors = [:]
    }
}

extension ReadBuffer {
    /// Memory with an owner, so that views stay valid when the buffer grows.
    fileprivate final class Block: @unchecked Sendable {
        // Unchecked: the pointer never changes, and the memory is written under the buffer's lock.
        let start: UnsafeMutableRawPointer
        let capacity: Int

        init(capacity: Int) {
            self.capacity = capacity
            start = .allocate(byteCount: max(capacity, 1), alignment: 16)
        }

        deinit { start.deallocate() }
    }
}

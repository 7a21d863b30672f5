// Rules of the buffer:
//  1. A read delivers a view of the buffer's memory, not a copy. To change the view changes a copy.
//  2. `Data` copies before a change when its memory has a second owner. The buffer is that owner: each view
//     is the beginning of an anchor, a `Data` from the same offset to the end of the block, which the buffer
//     keeps for as long as it uses the block. A view of its own for each read would have one owner.
//  3. There is one anchor for each offset at which reads put their bytes. When there are many, the buffer
//     moves to a new block and leaves the old one to its views, which may then change it.
//  4. Memory without bytes of a read is never shown: a gap has zeros.

public import FoundationEssentials
internal import Glibc
internal import SocketBuffers

/// Your own memory for reads to fill: one allocation for many reads.
///
/// Pass it to `readData(…buffer:bufferOffset:…)`. The bytes land at the offset, and the buffer grows when
/// they do not fit. The `data` that `socket(_:didRead:withTag:)` brings is a view of this memory: it costs no
/// copy, and it changes when a later read fills the same place. Take what you need before you queue that
/// read, and do not give one place to two reads at once. You may change that `data`: as with every other
/// `Data`, this changes a copy, and leaves the buffer alone.
public final class ReadBuffer: Sendable {
    private let contents: Locked<Contents>

    fileprivate struct Contents {
        var block: Block
        /// The smallest size of the first allocation.
        let reserved: Int
        var count = 0
        /// The anchors of rule 2, by offset.
        var anchors: [Int: Data] = [:]
    }

    /// An empty buffer.
    ///
    /// - Parameter capacity: The bytes that the first read makes room for, so that it need not grow soon.
    ///   More than 64 MiB counts as 64 MiB, and less than zero as zero: beyond that the buffer grows with the
    ///   bytes that arrive.
    public init(capacity: Int = 0) {
        contents = Locked(Contents(block: Block(capacity: 0), reserved: min(max(capacity, 0), Self.largestReservation)))
    }

    /// The caller chooses the capacity, and an allocation that fails ends the process.
    private static let largestReservation = 64 << 20

    /// How many bytes are in the buffer: the end of the bytes stored farthest back.
    public var count: Int { contents.withLock { $0.count } }

    /// A copy of all bytes in the buffer.
    public var data: Data {
        contents.withLock { Data(bytes: $0.block.start, count: $0.count) }
    }

    /// Forgets the bytes and keeps the memory.
    public func removeAll() {
        contents.withLock { $0.count = 0 }
    }

    /// Puts `bytes` at `offset`; a gap before it is filled with zeros.
    func store(_ bytes: UnsafeRawBufferPointer, at offset: Int) {
        guard let source = bytes.baseAddress else { return }
        contents.withLock { contents in
            contents.makeRoom(upTo: offset + bytes.count)
            memcpy(contents.block.start + offset, source, bytes.count)
            contents.count = max(contents.count, offset + bytes.count)
        }
    }

    /// A view of `count` bytes from `offset` on, which keeps their memory alive.
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
            // `removeAll()` may have dropped the bytes of this read already; they still belong to it.
            move(to: ReadBuffer.Block(capacity: block.capacity), keeping: max(count, offset + length))
        }
        let block = block
        let anchor = Data(
            bytesNoCopy: block.start + offset, count: block.capacity - offset,
            deallocator: .custom { _, _ in withExtendedLifetime(block) {} })
        anchors[offset] = anchor
        return anchor.prefix(length)
    }

    /// As many as make moving cheap: it copies a kilobyte at most for each read that brought an anchor.
    private var anchorLimit: Int { 16 + block.capacity / 1024 }

    /// Views of the old block keep it.
    private mutating func move(to other: ReadBuffer.Block, keeping count: Int) {
        memcpy(other.start, block.start, count)
        block = other
        anchors = [:]
    }
}

extension ReadBuffer {
    /// Memory with an owner, so that views can outlive a growth.
    fileprivate final class Block: @unchecked Sendable {
        // Unchecked: the pointer never changes; the bytes behind it are written under the buffer's lock.
        let start: UnsafeMutableRawPointer
        let capacity: Int

        init(capacity: Int) {
            self.capacity = capacity
            start = .allocate(byteCount: max(capacity, 1), alignment: 16)
        }

        deinit { start.deallocate() }
    }
}

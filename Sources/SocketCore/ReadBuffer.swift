public import FoundationEssentials
internal import Glibc
internal import SocketBuffers

/// Memory of yours that reads fill: one allocation for many reads.
///
/// Hand it to `readData(…buffer:bufferOffset:…)`. The bytes land at the offset, and the buffer grows when they do not fit. The `data` that
/// `socket(_:didRead:withTag:)` brings is a view of this memory: it costs no copy, and it changes when a later read fills the same place. Take what you need before
/// you queue that read, and do not give one place to two reads at once.
public final class ReadBuffer: Sendable {
    private let contents: Locked<Contents>

    fileprivate struct Contents {
        var block: Block
        /// The least that the first allocation brings.
        let reserved: Int
        var count = 0
    }

    /// An empty buffer.
    ///
    /// - Parameter capacity: The bytes that the first read makes room for, so that it need not grow soon. More than 64 MiB, or less than nothing, is taken for
    ///   64 MiB, or nothing: beyond that memory comes with the bytes that need it.
    public init(capacity: Int = 0) {
        contents = Locked(Contents(block: Block(capacity: 0), reserved: min(max(capacity, 0), Self.largestReservation)))
    }

    /// Reserved is what a caller has thought up, and allocation has no other answer than ending the process.
    private static let largestReservation = 64 << 20

    /// How many bytes are in the buffer: the end of what lies farthest back.
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
        return contents.withLock { contents in
            let block = contents.block
            return Data(
                bytesNoCopy: block.start + offset, count: count, deallocator: .custom { _, _ in withExtendedLifetime(block) {} })
        }
    }
}

extension ReadBuffer.Contents {
    mutating func makeRoom(upTo end: Int) {
        if end > block.capacity {
            // Views of the old block keep it.
            let larger = ReadBuffer.Block(capacity: max(end, block.capacity * 2, reserved))
            memcpy(larger.start, block.start, count)
            block = larger
        }
        if end > count { memset(block.start + count, 0, end - count) }
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

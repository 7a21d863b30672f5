internal import Synchronization

/// A pool of spare blocks of one size, so that a connection occupies a read buffer only while the buffer
/// contains bytes.
///
/// An idle connection has no buffer. A busy connection takes and returns a block at the cost of two atomic
/// exchanges.
package final class BufferPool: Sendable {
    /// The shared pool of blocks of `blockSize` bytes.
    package static let shared = BufferPool(spareLimit: 32)

    /// The default block size in bytes.
    ///
    /// A block holds four full TLS records including their overhead: 22 bytes per record in TLS 1.3, and at
    /// most about a hundred bytes with the old ciphers of TLS 1.2. With a block of 64 KiB, every fourth
    /// record sent would overflow the block.
    package static let blockSize = 64 * 1024 + 512

    private let spareLimit: Int
    private let size: Int
    /// The addresses of two spare blocks, or zero. There are two because a connection uses two blocks at a
    /// time. A single atomic exchange takes or returns each of them, whereas `spares` requires a lock.
    private let nearest = Atomic<UInt>(0)
    private let second = Atomic<UInt>(0)
    private let spares = Locked<[UnsafeMutableRawPointer]>([])

    package init(spareLimit: Int, size: Int = BufferPool.blockSize) {
        self.spareLimit = spareLimit
        self.size = size
    }

    deinit {
        UnsafeMutableRawPointer(bitPattern: nearest.load(ordering: .acquiring))?.deallocate()
        UnsafeMutableRawPointer(bitPattern: second.load(ordering: .acquiring))?.deallocate()
        spares.withLock { spares in
            for block in spares { block.deallocate() }
        }
    }

    /// The number of spare blocks, at most `spareLimit` plus two.
    package var spareCount: Int {
        let nearby = [nearest.load(ordering: .relaxed), second.load(ordering: .relaxed)].count { $0 != 0 }
        return nearby + spares.withLock { $0.count }
    }

    package func take() -> UnsafeMutableRawPointer {
        if let block = UnsafeMutableRawPointer(bitPattern: nearest.exchange(0, ordering: .acquiring)) { return block }
        if let block = UnsafeMutableRawPointer(bitPattern: second.exchange(0, ordering: .acquiring)) { return block }
        let spare = spares.withLock { $0.popLast() }
        return spare ?? .allocate(byteCount: size, alignment: 16)
    }

    package func give(_ block: UnsafeMutableRawPointer) {
        let address = UInt(bitPattern: block)
        if nearest.compareExchange(expected: 0, desired: address, ordering: .releasing).exchanged { return }
        if second.compareExchange(expected: 0, desired: address, ordering: .releasing).exchanged { return }
        let kept = spares.withLock { spares in
            guard spares.count < spareLimit else { return false }
            spares.append(block)
            return true
        }
        if !kept { block.deallocate() }
    }
}

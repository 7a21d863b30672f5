internal import Synchronization

/// Spare blocks of one size. With them a connection holds a read buffer only while the buffer has bytes.
///
/// An idle connection has no buffer. A busy one takes a block and returns it at the cost of two atomic
/// exchanges.
package final class BufferPool: Sendable {
    /// Blocks of `blockSize` bytes.
    package static let shared = BufferPool(spareLimit: 32)

    /// The size of a block, in bytes, of all pools but those with a size of their own.
    ///
    /// A block holds four full TLS records with the bytes that encryption adds: 22 for each in TLS 1.3, at
    /// most some hundred with the old ciphers of TLS 1.2. Every fourth record sent would overflow a block of
    /// 64 KiB.
    package static let blockSize = 64 * 1024 + 512

    private let spareLimit: Int
    private let size: Int
    /// The addresses of two spare blocks, or zero: a connection uses two at a time. One exchange takes or
    /// returns one of them; a lock protects the others.
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

    /// The number of spare blocks: at most two more than `spareLimit`.
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

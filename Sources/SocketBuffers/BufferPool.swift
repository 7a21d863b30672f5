internal import Synchronization

/// Spare blocks of a little more than 64 KiB, so that a connection holds a read buffer only while there are
/// bytes in it.
///
/// An idle connection costs no buffer at all; a busy one takes a block and gives it back for the price of two
/// atomic exchanges.
package final class BufferPool: Sendable {
    package static let shared = BufferPool(spareLimit: 32)

    /// The size of one pooled block, in bytes.
    ///
    /// Four full TLS records fit into one, with what encryption adds to them: 22 bytes each in TLS 1.3, at
    /// most some hundred with the old ciphers of TLS 1.2. A block of 64 KiB overflowed with every fourth
    /// record that was to be sent.
    package static let blockSize = 64 * 1024 + 512

    private let spareLimit: Int
    /// The addresses of two blocks at hand, or zero: as many as a connection uses at a time. One exchange
    /// takes one or puts it there; the others stand behind a lock.
    private let nearest = Atomic<UInt>(0)
    private let second = Atomic<UInt>(0)
    private let spares = Locked<[UnsafeMutableRawPointer]>([])

    package init(spareLimit: Int) {
        self.spareLimit = spareLimit
    }

    deinit {
        UnsafeMutableRawPointer(bitPattern: nearest.load(ordering: .acquiring))?.deallocate()
        UnsafeMutableRawPointer(bitPattern: second.load(ordering: .acquiring))?.deallocate()
        spares.withLock { spares in
            for block in spares { block.deallocate() }
        }
    }

    /// How many blocks wait to be taken: at most two more than `spareLimit`.
    var spareCount: Int {
        let nearby = [nearest.load(ordering: .relaxed), second.load(ordering: .relaxed)].count { $0 != 0 }
        return nearby + spares.withLock { $0.count }
    }

    func take() -> UnsafeMutableRawPointer {
        if let block = UnsafeMutableRawPointer(bitPattern: nearest.exchange(0, ordering: .acquiring)) { return block }
        if let block = UnsafeMutableRawPointer(bitPattern: second.exchange(0, ordering: .acquiring)) { return block }
        let spare = spares.withLock { $0.popLast() }
        return spare ?? .allocate(byteCount: Self.blockSize, alignment: 16)
    }

    func give(_ block: UnsafeMutableRawPointer) {
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

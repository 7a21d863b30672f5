/// Spare 64 KiB blocks, so that a connection holds a read buffer only while there are bytes in it.
///
/// An idle connection costs no buffer at all; a busy one takes a block and gives it back for the price of two uncontended locks.
package final class BufferPool: Sendable {
    package static let shared = BufferPool(spareLimit: 32)

    /// The size of one pooled block, in bytes.
    package static let blockSize = 64 * 1024

    private let spareLimit: Int
    private let spares = Locked<[UnsafeMutableRawPointer]>([])

    package init(spareLimit: Int) {
        self.spareLimit = spareLimit
    }

    deinit {
        spares.withLock { spares in
            for block in spares { block.deallocate() }
        }
    }

    func take() -> UnsafeMutableRawPointer {
        let spare = spares.withLock { $0.popLast() }
        return spare ?? .allocate(byteCount: Self.blockSize, alignment: 16)
    }

    func give(_ block: UnsafeMutableRawPointer) {
        let kept = spares.withLock { spares in
            guard spares.count < spareLimit else { return false }
            spares.append(block)
            return true
        }
        if !kept { block.deallocate() }
    }
}

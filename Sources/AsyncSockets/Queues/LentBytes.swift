internal import FoundationEssentials
internal import SocketBuffers

/// Bytes lent to a delegate, either in the buffer block in which they arrived or in a copy.
///
/// A block uses 64 KiB, however few bytes it holds. It is therefore lent only to an inline delegate with no
/// pending events.
final class LentBytes: Sendable {
    private let block: TakenBlock?
    private let copy: Data?

    /// Takes all bytes of `buffer`, which must not be empty.
    init(from buffer: PreBuffer, inBlock: Bool) {
        block = inBlock ? buffer.takeBlock(buffer.count, atLeast: 1) : nil
        copy = block == nil ? buffer.takeData(buffer.count) : nil
    }

    deinit { block?.giveBack() }

    @inline(__always)
    func lend(to body: (RawSpan) -> Void) {
        // The block is given back when this object is released.
        defer { withExtendedLifetime(self) {} }
        if let block {
            body(UnsafeRawBufferPointer(start: block.start, count: block.count).bytes)
        } else if let copy {
            // Not `copy.bytes`, which crashes the compiler of Swift 6.2.
            copy.withUnsafeBytes { body($0.bytes) }
        }
    }
}

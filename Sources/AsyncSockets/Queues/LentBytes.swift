internal import FoundationEssentials
internal import SocketBuffers

/// Bytes that a delegate borrows: in the block of the buffer that they arrived in, or in a copy.
///
/// A block takes 64 KiB, however few the bytes: an inline delegate gets it, when no event waits before it.
final class LentBytes: Sendable {
    private let block: TakenBlock?
    private let copy: Data?

    /// Takes all bytes of `buffer`, which has some.
    init(from buffer: PreBuffer, inBlock: Bool) {
        block = inBlock ? buffer.takeBlock(buffer.count, atLeast: 1) : nil
        copy = block == nil ? buffer.takeData(buffer.count) : nil
    }

    deinit { block?.giveBack() }

    /// Calls `body` with the bytes.
    @inline(__always)
    func lend(to body: (RawSpan) -> Void) {
        // The end of this gives the block back.
        defer { withExtendedLifetime(self) {} }
        if let block {
            body(UnsafeRawBufferPointer(start: block.start, count: block.count).bytes)
        } else if let copy {
            body(copy.bytes)
        }
    }
}

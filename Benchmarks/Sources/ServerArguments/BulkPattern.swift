/// The bytes in bulk transfers. Each byte depends only on its position, as in the load generator's
/// `pattern.h`.
public enum BulkPattern {
    /// Positions at this distance have the same byte.
    public static let period = 251

    /// The byte at a position in a stream.
    public static func byte(at position: Int) -> UInt8 {
        let value = UInt8(truncatingIfNeeded: position % period)
        return value == 10 ? 251 : value
    }

    /// `count` bytes plus one period, so that the bytes for any position in a stream start at `position %
    /// period`.
    public static func bytes(_ count: Int) -> [UInt8] {
        let one = (0..<period).map(byte(at:))
        return [UInt8](unsafeUninitializedCapacity: count + period) { buffer, initialized in
            while initialized < buffer.count {
                let part = min(period, buffer.count - initialized)
                _ = UnsafeMutableBufferPointer(rebasing: buffer[initialized..<initialized + part]).initialize(from: one[..<part])
                initialized += part
            }
        }
    }

    /// The number of writes in a batch of 128 KiB, at least one. The next batch starts when they complete.
    public static func writesAtOnce(ofSize size: Int) -> Int {
        max(1, 131_072 / size)
    }
}

/// The receiving side of a transfer: an eight-byte length, then that many bytes.
public struct BulkReceipt: Sendable {
    private var expected = 0
    private var position = 0
    private var right = 0

    /// A receipt that expects `count` bytes.
    public init(expecting count: Int) {
        expected = count
    }

    /// Adds a piece and checks its first and last byte. Returns true for the last piece.
    public mutating func take(count: Int, first: UInt8, last: UInt8) -> Bool {
        if first == BulkPattern.byte(at: position), last == BulkPattern.byte(at: position + count - 1) { right += count }
        position += count
        return position >= expected
    }

    /// The receipt for the client: the number of correct bytes, or nil if too many were received.
    public var verdict: UInt64 {
        position == expected ? UInt64(right) : 0
    }
}

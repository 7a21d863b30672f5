/// A limit on a number of bytes, or no limit.
///
/// Write a literal, as in `maxLength: 4096`, or `.bytes(count)` for a computed value.
public struct ByteLimit: Sendable, Hashable, ExpressibleByIntegerLiteral, CustomStringConvertible {
    /// The number of bytes, or `Int.max` for no limit.
    package let count: Int

    private init(count: Int) {
        self.count = count
    }

    /// Creates a limit of `count` bytes.
    public init(integerLiteral count: Int) {
        self.init(count: count)
    }

    /// Returns a limit of `count` bytes.
    public static func bytes(_ count: Int) -> ByteLimit {
        ByteLimit(count: count)
    }

    /// Returns a limit of `count` mebibytes (1,048,576 bytes each).
    public static func mebibytes(_ count: Int) -> ByteLimit {
        let (product, overflows) = count.multipliedReportingOverflow(by: 1 << 20)
        return ByteLimit(count: overflows ? (count < 0 ? 0 : .max) : product)
    }

    /// No limit. The peer, or your own code, then determines how much memory is used.
    public static let unlimited = ByteLimit(count: .max)

    /// The number of bytes, or "unlimited".
    public var description: String {
        self == .unlimited ? "unlimited" : "\(count) bytes"
    }
}

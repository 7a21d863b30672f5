/// A limit on a number of bytes, or no limit.
///
/// Write a literal, as in `maxLength: 4096`, or `.bytes(count)` for a computed number.
public struct ByteLimit: Sendable, Hashable, ExpressibleByIntegerLiteral, CustomStringConvertible {
    /// The number; `Int.max` when there is no limit.
    package let count: Int

    private init(count: Int) {
        self.count = count
    }

    /// A limit of that many bytes.
    public init(integerLiteral count: Int) {
        self.init(count: count)
    }

    /// A limit of that many bytes.
    public static func bytes(_ count: Int) -> ByteLimit {
        ByteLimit(count: count)
    }

    /// A limit of that many mebibytes, of 1,048,576 bytes each.
    public static func mebibytes(_ count: Int) -> ByteLimit {
        let (product, overflows) = count.multipliedReportingOverflow(by: 1 << 20)
        return ByteLimit(count: overflows ? (count < 0 ? 0 : .max) : product)
    }

    /// No limit: the peer, or your own code, decides how much memory is used.
    public static let unlimited = ByteLimit(count: .max)

    /// The number of bytes, or "unlimited".
    public var description: String {
        self == .unlimited ? "unlimited" : "\(count) bytes"
    }
}

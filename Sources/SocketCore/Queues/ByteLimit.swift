/// A bound on a number of bytes, or the word that there is none.
///
/// A number stands for itself: `maxLength: 4096`. For one that is computed write `.bytes(count)`.
public struct ByteLimit: Sendable, Hashable, ExpressibleByIntegerLiteral, CustomStringConvertible {
    /// The number; `Int.max` when there is no bound.
    package let count: Int

    private init(count: Int) {
        self.count = count
    }

    /// A bound of so many bytes.
    public init(integerLiteral count: Int) {
        self.init(count: count)
    }

    /// A bound of so many bytes.
    public static func bytes(_ count: Int) -> ByteLimit {
        ByteLimit(count: count)
    }

    /// A bound of so many times 1,048,576 bytes.
    public static func mebibytes(_ count: Int) -> ByteLimit {
        let (product, overflows) = count.multipliedReportingOverflow(by: 1 << 20)
        return ByteLimit(count: overflows ? (count < 0 ? 0 : .max) : product)
    }

    /// No bound: the peer, or your own code, decides how much memory is used.
    public static let unlimited = ByteLimit(count: .max)

    /// The number, or "unlimited".
    public var description: String {
        self == .unlimited ? "unlimited" : "\(count) bytes"
    }
}

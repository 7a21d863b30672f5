internal import SocketBuffers

/// A limit on the bytes per second of one direction of a connection.
public struct ByteRate: Sendable, Hashable {
    /// The sustained number of bytes per second.
    public let bytesPerSecond: Int
    /// The maximum number of bytes that pass without a delay, at the start of a connection or after an idle
    /// time.
    public let burst: Int

    /// Creates a limit.
    ///
    /// - Parameters:
    ///   - bytesPerSecond: From 1 to 2^50; other values are clamped.
    ///   - burst: From a twentieth of `bytesPerSecond` to 2^50; other values are clamped. With a smaller
    ///     burst, the connection would wake more than 20 times per second. Defaults to `bytesPerSecond`.
    public init(bytesPerSecond: Int, burst: Int? = nil) {
        let rate = bytesPerSecond.clamped(to: 1...Self.largest)
        self.bytesPerSecond = rate
        self.burst = (burst ?? rate).clamped(to: max(rate / Self.wakesPerSecond, 1)...Self.largest)
    }

    /// A pause lasts until this part of a second's bytes may pass. This limits how often a connection wakes
    /// its loop, and avoids tiny segments.
    static let wakesPerSecond = 20
    /// A `Double` represents the sums exactly.
    private static let largest = 1 << 50
}

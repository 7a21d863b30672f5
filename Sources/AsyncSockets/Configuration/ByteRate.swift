internal import SocketBuffers

/// A limit on the bytes per second of one direction of a connection.
public struct ByteRate: Sendable, Hashable {
    /// The sustained number of bytes per second.
    public let bytesPerSecond: Int
    /// The number of bytes that pass without a delay after a pause.
    public let burst: Int

    /// Creates a limit.
    ///
    /// - Parameters:
    ///   - bytesPerSecond: At least 1; smaller values become 1.
    ///   - burst: At least 1; smaller values become 1. Defaults to the bytes of one second.
    public init(bytesPerSecond: Int, burst: Int? = nil) {
        self.bytesPerSecond = bytesPerSecond.clamped(to: 1...)
        self.burst = (burst ?? bytesPerSecond).clamped(to: 1...)
    }
}

/// How long a client waits before it connects again.
///
/// The time doubles with each failure, from `minimum` to `maximum`. The client waits a random part of it,
/// between half and all: so the clients of a server that restarts do not come back in the same moment.
public struct BackOff: Sendable, Hashable {
    /// The time after the first failure.
    public let minimum: Duration
    /// The longest time.
    public let maximum: Duration

    /// From half a second to a minute.
    public static let standard = BackOff(from: .milliseconds(500), to: .seconds(60))

    /// - Parameters:
    ///   - minimum: The time after the first failure; one millisecond at least.
    ///   - maximum: The longest time; not below `minimum`, and a day at most.
    public init(from minimum: Duration, to maximum: Duration) {
        self.minimum = min(max(minimum, .milliseconds(1)), .seconds(86_400))
        self.maximum = min(max(maximum, self.minimum), .seconds(86_400))
    }

    /// The time before the attempt that follows `failures` failures, which are at least 1.
    func delay(afterFailures failures: Int) -> Duration {
        var (delay, doublings) = (minimum, failures - 1)
        while doublings > 0, delay < maximum { (delay, doublings) = (delay + delay, doublings - 1) }
        return min(delay, maximum) * Double.random(in: 0.5...1)
    }
}

/// The delay before a client reconnects.
///
/// The delay doubles with each failure, from `minimum` to `maximum`. The client waits for a random part of
/// the delay, between half and all of the delay, so that the clients of a restarted server do not all
/// reconnect at the same moment.
public struct BackOff: Sendable, Hashable {
    /// The delay after the first failure.
    public let minimum: Duration
    /// The longest delay.
    public let maximum: Duration

    /// A delay from half a second to a minute.
    public static let standard = BackOff(from: .milliseconds(500), to: .seconds(60))

    /// Creates a back-off policy.
    ///
    /// - Parameters:
    ///   - minimum: The delay after the first failure, at least one millisecond.
    ///   - maximum: The longest delay, at least `minimum` and at most a day.
    public init(from minimum: Duration, to maximum: Duration) {
        self.minimum = min(max(minimum, .milliseconds(1)), .seconds(86_400))
        self.maximum = min(max(maximum, self.minimum), .seconds(86_400))
    }

    /// Returns the delay before the next attempt. `failures` is the number of failures so far, at least 1.
    func delay(afterFailures failures: Int) -> Duration {
        var (delay, doublings) = (minimum, failures - 1)
        while doublings > 0, delay < maximum { (delay, doublings) = (delay + delay, doublings - 1) }
        return min(delay, maximum) * Double.random(in: 0.5...1)
    }
}

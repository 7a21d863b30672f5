internal import SocketCore

/// The bytes that a `ByteRate` allows at a time (a token bucket).
struct ByteAllowance {
    let rate: ByteRate
    private var available: Double
    private var time: Deadline
    private var isPaused = false

    /// - Parameter earlier: The allowance under an earlier rate. A new rate does not start with a burst
    ///   again.
    init(_ rate: ByteRate, after earlier: ByteAllowance?, at now: Deadline) {
        var earlier = earlier
        earlier?.advance(to: now)
        (self.rate, time) = (rate, now)
        available = min(earlier?.available ?? .infinity, Double(rate.burst))
    }

    private mutating func advance(to now: Deadline) {
        available = min(available + max(now.seconds(since: time), 0) * Double(rate.bytesPerSecond), Double(rate.burst))
        time = now
    }

    /// Returns how many bytes may pass now. If that is zero, a pause is needed until `end(ofPauseAt:)`.
    mutating func count(at now: Deadline) -> Int {
        advance(to: now)
        isPaused = available + Self.roundingError < (isPaused ? leastAfterPause : 1)
        return isPaused ? 0 : max(Int(available), 1)
    }

    func end(ofPauseAt now: Deadline) -> Deadline? {
        // Deadlines are rounded down to nanoseconds.
        Deadline(after: (leastAfterPause - available) / Double(rate.bytesPerSecond) + 2e-9, from: now)
    }

    mutating func take(_ count: Int) { available -= Double(count) }

    private var leastAfterPause: Double { Double(max(rate.bytesPerSecond / ByteRate.wakesPerSecond, 1)) }
    private static let roundingError = 0.001
}

/// The limits on the rates of a connection, for the few that have one.
final class ChannelPace {
    private var input: ByteAllowance?
    private var output: ByteAllowance?
    /// Whether the next read is not limited. Later reads make up for it.
    var mayReceiveOnce = false

    /// Returns `nil` without a limit.
    ///
    /// - Parameter earlier: The limits so far.
    init?(read: ByteRate?, write: ByteRate?, after earlier: ChannelPace?) {
        guard read != nil || write != nil else { return nil }
        input = Self.allowance(read, after: earlier?.input)
        output = Self.allowance(write, after: earlier?.output)
    }

    private static func allowance(_ rate: ByteRate?, after earlier: ByteAllowance?) -> ByteAllowance? {
        rate.map { ByteAllowance($0, after: earlier, at: .now) }
    }

    /// Returns how many bytes may be received. At zero, `input` pauses.
    func mayReceive(_ input: inout InputReadiness) -> Int {
        if mayReceiveOnce {
            mayReceiveOnce = false
            return .max
        }
        let (count, end) = Self.count(&self.input)
        if count == 0 { input = .paused(until: end) }
        return count
    }

    /// Returns how many bytes may be sent. At zero, `output` pauses.
    func maySend(_ output: inout OutputReadiness) -> Int {
        let (count, end) = Self.count(&self.output)
        if count == 0 { output = .exhausted(until: end) }
        return count
    }

    private static func count(_ allowance: inout ByteAllowance?) -> (Int, pauseEnd: Deadline?) {
        guard allowance != nil else { return (.max, nil) }
        let now = Deadline.now
        let count = allowance?.count(at: now) ?? 0
        return (count, count > 0 ? nil : allowance?.end(ofPauseAt: now))
    }

    func noteReceived(_ count: Int) { input?.take(count) }
    func noteSent(_ count: Int) { output?.take(count) }
}

internal import SocketCore

/// The bytes that a `ByteRate` allows at a time (a token bucket).
struct ByteAllowance {
    let rate: ByteRate
    private var available: Double
    private var time: Deadline

    /// A pause lasts until this part of a second's bytes is allowed. This limits how often a connection wakes
    /// its loop, and avoids tiny segments.
    private static let wakesPerSecond = 20.0

    init(_ rate: ByteRate, at now: Deadline) {
        (self.rate, available, time) = (rate, Double(rate.burst), now)
    }

    /// Returns how many bytes may pass now. If that is zero, a pause is needed until `end(ofPauseAt:)`.
    mutating func count(at now: Deadline) -> Int {
        available = min(available + max(now.seconds(since: time), 0) * Double(rate.bytesPerSecond), Double(rate.burst))
        time = now
        // The end of a pause is rounded to nanoseconds.
        return available + Self.roundingError >= least ? max(Int(available), 1) : 0
    }

    func end(ofPauseAt now: Deadline) -> Deadline? {
        Deadline(after: (least - available) / Double(rate.bytesPerSecond), from: now)
    }

    mutating func take(_ count: Int) { available -= Double(count) }

    private var least: Double { min(max(Double(rate.bytesPerSecond) / Self.wakesPerSecond, 1), Double(rate.burst)) }
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
    /// - Parameter earlier: The limits so far. An unchanged limit does not begin with a burst again.
    init?(read: ByteRate?, write: ByteRate?, after earlier: ChannelPace?) {
        guard read != nil || write != nil else { return nil }
        input = Self.allowance(read, after: earlier?.input)
        output = Self.allowance(write, after: earlier?.output)
    }

    private static func allowance(_ rate: ByteRate?, after earlier: ByteAllowance?) -> ByteAllowance? {
        earlier?.rate == rate ? earlier : rate.map { ByteAllowance($0, at: .now) }
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

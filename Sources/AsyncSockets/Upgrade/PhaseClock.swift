internal import SocketCore
internal import SocketTLS

/// The time limit of one step of an upgrade (reads and writes have separate limits). Only one clock runs at a
/// time.
///
/// A class, because most of the time a connection has no clock, and an idle connection should not reserve
/// memory for one.
final class PhaseClock {
    enum Limit {
        /// A look-up by a client's program before the dialogue and the handshake. The error is for a look-up
        /// that takes too long.
        indirect case lookUp(TLSError)
        /// Writes that precede a task's `startTLS`. If bytes have been sent by the time the clock expires,
        /// the clock restarts.
        case earlierWrites(WriteHalf.Position)
        /// Work that precedes a task's `startDTLS`: queued datagrams, a `receiveOnce()` or running filters.
        case earlierDatagrams
        /// The dialogue that precedes the handshake, with the name of its protocol.
        case dialogue(String)
        /// The handshake, or the client's response to a certificate request.
        case handshake(thenTrust: Double)
        /// The decision whether to trust the peer's certificate. The handshake's clock is paused.
        case trust(pausing: PhaseClock)
    }

    let limit: Limit
    /// The total time allowed, without pauses.
    let seconds: Double
    private(set) var deadline: Deadline?
    private var left: Double

    init(_ limit: Limit, seconds: Double, at now: Deadline = .now) {
        self.limit = limit
        self.seconds = seconds
        left = seconds
        deadline = Deadline(after: seconds, from: now)
    }

    /// Pauses the handshake's clock and returns a clock for the verdict.
    func pauseForTrust(at now: Deadline = .now) -> PhaseClock? {
        guard case .handshake(let trustSeconds) = limit else { return nil }
        if let deadline { left = max(deadline.seconds(since: now), 0) }
        deadline = nil
        return PhaseClock(.trust(pausing: self), seconds: trustSeconds, at: now)
    }

    /// Stops the verdict's clock and returns the handshake's clock, which continues with its remaining time.
    func resumeHandshake(at now: Deadline = .now) -> PhaseClock? {
        guard case .trust(let handshake) = limit else { return nil }
        handshake.deadline = Deadline(after: handshake.left, from: now)
        return handshake
    }
}

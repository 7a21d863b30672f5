internal import SocketCore

/// The time limit of a step of an upgrade (reads and writes have their own); never two at once.
///
/// A class, since most of the time a connection has no clock, and an idle one keeps no room for it.
final class PhaseClock {
    enum Limit {
        /// The writes that a task's `startTLS` waits for: it begins again as long as bytes leave.
        case earlierWrites(WriteHalf.Position)
        /// A task's `startDTLS` waits for datagrams on their way out, a `receiveOnce()`, or filters.
        case earlierDatagrams
        /// The handshake, or a client's answer to a request.
        case handshake(thenTrust: Double)
        /// The verdict about the peer's certificate; the handshake's clock pauses meanwhile.
        case trust(pausing: PhaseClock)
    }

    let limit: Limit
    /// The whole time allowed, pauses not counted.
    let seconds: Double
    private(set) var deadline: Deadline?
    private var left: Double

    init(_ limit: Limit, seconds: Double, at now: Deadline = .now) {
        self.limit = limit
        self.seconds = seconds
        left = seconds
        deadline = Deadline(after: seconds, from: now)
    }

    /// The handshake's clock pauses from now on. Returns the verdict's clock.
    func pauseForTrust(at now: Deadline = .now) -> PhaseClock? {
        guard case .handshake(let trustSeconds) = limit else { return nil }
        if let deadline { left = max(deadline.seconds(since: now), 0) }
        deadline = nil
        return PhaseClock(.trust(pausing: self), seconds: trustSeconds, at: now)
    }

    /// The verdict's clock ends. Returns the handshake's, which goes on with the time it had left.
    func resumeHandshake(at now: Deadline = .now) -> PhaseClock? {
        guard case .trust(let handshake) = limit else { return nil }
        handshake.deadline = Deadline(after: handshake.left, from: now)
        return handshake
    }
}

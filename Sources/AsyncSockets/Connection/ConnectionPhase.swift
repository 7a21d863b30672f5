internal import SocketCore

/// What a connection is doing, TLS apart.
enum ConnectionPhase {
    /// Made, and not told yet what to do.
    case idle
    /// On its way to a descriptor.
    case opening(Opening)
    /// The connection to a proxy is established, and the proxy is being asked for the one that was wanted.
    indirect case negotiating(ByteChannel, Tunnel)
    /// It is established (`kConnected`).
    case connected(ByteChannel)
    /// It has ended; nothing changes any more.
    indirect case closed(AsyncSocketError?)
}

/// What a connection has to be done with before a certain time, besides reads and writes; never two at once.
///
/// A class, since most of the time there is none: an idle connection keeps no room for it.
final class PhaseClock {
    enum Limit {
        case connect
        case handshake(thenTrust: Double)
        /// The delegate's verdict; the handshake's clock stands still meanwhile.
        case trust(pausing: PhaseClock)
    }

    let limit: Limit
    /// All the time there is, pauses apart.
    let seconds: Double
    private(set) var deadline: Deadline?
    private var left: Double

    init(_ limit: Limit, seconds: Double, at now: Deadline = .now) {
        self.limit = limit
        self.seconds = seconds
        left = seconds
        deadline = Deadline(after: seconds, from: now)
    }

    /// The handshake's: stands still from now on. Returns the clock of the verdict.
    func pauseForTrust(at now: Deadline = .now) -> PhaseClock? {
        guard case .handshake(let trustSeconds) = limit else { return nil }
        if let deadline { left = max(deadline.seconds(since: now), 0) }
        deadline = nil
        return PhaseClock(.trust(pausing: self), seconds: trustSeconds, at: now)
    }

    /// The verdict's: returns the handshake's, which goes on with what was left when it stopped.
    func resumeHandshake(at now: Deadline = .now) -> PhaseClock? {
        guard case .trust(let handshake) = limit else { return nil }
        handshake.deadline = Deadline(after: handshake.left, from: now)
        return handshake
    }
}

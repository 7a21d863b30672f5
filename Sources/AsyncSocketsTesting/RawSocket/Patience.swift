internal import Glibc

/// How long one wait may take, and what ends it early. Every wait of a peer, of a relay and of a `RawSocket`
/// goes through here.
package struct Patience: Sendable {
    let timeout: Duration
    /// When this is given, the wait throws `stopped`.
    let stop: TestSignal?

    package init(timeout: Duration, stop: TestSignal? = nil) {
        self.timeout = timeout
        self.stop = stop
    }

    package static let oneMinute = Patience(timeout: .seconds(60))

    /// Returns when `descriptor` is ready or broken; the next call on it tells which.
    func wait(for events: Int16, on descriptor: Int32, _ operation: String) throws(LoopbackError) {
        let deadline = ContinuousClock.now + timeout
        var entries = [pollfd(fd: descriptor, events: events, revents: 0)]
        if let stop { entries.append(pollfd(fd: stop.readEnd, events: Int16(POLLIN), revents: 0)) }
        while true {
            let ready = poll(&entries, nfds_t(entries.count), milliseconds(until: deadline))
            if ready < 0 && errno == EINTR { continue }
            if ready < 0 { throw .system("poll") }
            if entries.count > 1 && entries[1].revents != 0 {
                throw LoopbackError(.stopped, "The peer was stopped.", operation: operation)
            }
            if ready > 0 { return }
            if ContinuousClock.now >= deadline {
                throw LoopbackError(.timedOut, "Nothing happened within \(timeout).", operation: operation)
            }
        }
    }

    func wait(for signal: TestSignal) throws(LoopbackError) {
        try wait(for: Int16(POLLIN), on: signal.readEnd, "wait for a signal")
    }

    /// Rounded up, so that a wait does not spin through its last millisecond.
    private func milliseconds(until deadline: ContinuousClock.Instant) -> Int32 {
        let rest = max(.zero, deadline - ContinuousClock.now)
        let parts = rest.components
        let whole = min(parts.seconds, 1_000_000) * 1000 + parts.attoseconds / 1_000_000_000_000_000
        return Int32(whole + 1)
    }
}

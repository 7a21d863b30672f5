internal import SocketCore

/// What happens when something takes too long.
extension StreamConnection {
    /// Asks the loop for an event at the earliest of the deadlines.
    func armDeadline() {
        let earliest = Deadline.earlier(
            .earlier(clock?.deadline, phase.deadline),
            .earlier(.earlier(writes.retry, writes.patience), .earlier(reads.timer.deadline, writes.timer.deadline)))
        guard let earliest else { return }
        // A deadline that has moved away is left armed: it comes early, finds nothing expired, and the next
        // one is armed then.
        if let armedDeadline, armedDeadline <= earliest { return }
        guard let registration else { return }
        armedDeadline = earliest
        loop.setDeadline(earliest, of: registration)
    }

    func expire() {
        armedDeadline = nil
        let now = Deadline.now
        if let clock, let deadline = clock.deadline, deadline <= now { expire(clock) }
        expireAttempts(at: now)
        expireRead(at: now)
        expireWrite(at: now)
        if let retry = writes.retry, retry <= now {
            writes.retry = nil
            writes.canAcceptBytes = true
        }
    }

    private func expire(_ clock: PhaseClock) {
        switch clock.limit {
        case .connect: close(.timeout(.connectTimeout, "connect", seconds: clock.seconds))
        case .handshake:
            upgrade.engine?.abandonHandshake()
            close(.timeout(.handshakeTimeout, "startTLS", seconds: clock.seconds))
        case .trust: expireTrust()
        }
    }

    private func expireRead(at now: Deadline) {
        guard let elapsed = reads.timer.takeExpiry(at: now), let read = reads.progress else { return }
        let operation = reads.timer.operation
        let late = TimedOutOperation(
            tag: read.tag, elapsed: elapsed, bytesDone: read.bytesDone,
            answer: { [weak self] seconds in self?.post(.extendRead(operation: operation, seconds: seconds)) })
        report(.readTimedOut(late))
    }

    private func expireWrite(at now: Deadline) {
        guard let elapsed = writes.timer.takeExpiry(at: now), let write = writes.progress else { return }
        let operation = writes.timer.operation
        let late = TimedOutOperation(
            tag: write.tag, elapsed: elapsed, bytesDone: write.bytesDone,
            answer: { [weak self] seconds in self?.post(.extendWrite(operation: operation, seconds: seconds)) })
        report(.writeTimedOut(late))
    }

    /// The delegate's answer, which counts for the operation that was asked about and for no other.
    func extendRead(_ operation: UInt64, by seconds: Double) {
        guard operation == reads.timer.operation, let timeout = reads.queue.timeout else { return }
        if seconds > 0 { return reads.timer.extend(by: seconds) }
        let error = AsyncSocketError.timeout(.readTimeout, "read", seconds: timeout)
        guard configuration.keepsConnectionOnReadTimeout else { return close(error) }
        abandonRead(error)
        needsPump = true
    }

    /// The delegate's answer, which counts for the operation that was asked about and for no other.
    func extendWrite(_ operation: UInt64, by seconds: Double) {
        guard operation == writes.timer.operation, let timeout = writes.queue.timeout else { return }
        guard seconds > 0 else { return close(.timeout(.writeTimeout, "write", seconds: timeout)) }
        writes.timer.extend(by: seconds)
    }
}

internal import SocketCore

// Operations that take too long, or that are given up.
extension DataPath {
    /// Asks the delegate about its late operations, and cancels late ones of waiters.
    func expire(at now: Deadline, _ owner: any PartOwner) {
        channel?.retryIfDue(at: now)
        if let late = ask(reads.takeLate(at: now), owner, { .extendRead(operation: $0, seconds: $1) }) {
            events.append(.readTimedOut(late))
        }
        if let late = ask(writes.takeLate(at: now), owner, { .extendWrite(operation: $0, seconds: $1) }) {
            events.append(.writeTimedOut(late))
        }
        // Each waiter has its own time, wherever its operation is in the queue.
        while let waiter = reads.packets.lateWaiter(at: now) { _ = cancel(waiter, waiter.lateError) }
        while let waiter = writes.packets.lateWaiter(at: now) { _ = cancel(waiter, waiter.lateError) }
    }

    /// The question about a late operation, whose answer is a message.
    private func ask(
        _ late: LateOperation?, _ owner: any PartOwner, _ message: @escaping @Sendable (UInt32, Double) -> ConnectionMessage
    ) -> TimedOutOperation? {
        late.map { late in TimedOutOperation(late) { [weak owner, number = late.number] in owner?.post(message(number, $0)) } }
    }

    /// The delegate's answer, which counts for the operation that was asked about and for no other.
    func extendRead(_ number: UInt32, by seconds: Double) -> Fate {
        guard let timeout = reads.packets.extend(number, by: seconds) else { return .goesOn }
        let error = AsyncSocketError.timeout(.readTimeout, "read", seconds: timeout)
        guard configuration.value.keepsConnectionOnReadTimeout else { return .ends(error) }
        abandonRead(error)
        needsPump = true
        return .goesOn
    }

    /// The delegate's answer, which counts for the operation that was asked about and for no other.
    func extendWrite(_ number: UInt32, by seconds: Double) -> Fate {
        guard let timeout = writes.packets.extend(number, by: seconds) else { return .goesOn }
        return .ends(.timeout(.writeTimeout, "write", seconds: timeout))
    }

    /// Answers a waiter with `error`, if it waits here.
    func cancel(_ waiter: AnyObject, _ error: any Error) -> Bool {
        if let completion = reads.cancel(waiter).completion {
            completion.refuse(error)
        } else if let completion = writes.cancel(waiter).completion {
            completion.refuse(error)
            if writes.isAboveHighWater { reportLowWater() }
        } else {
            return false
        }
        needsPump = true
        return true
    }
}

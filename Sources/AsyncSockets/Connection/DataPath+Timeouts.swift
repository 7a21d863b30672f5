internal import SocketCore

// Operations that time out or are cancelled.
extension DataPath {
    /// Requests an extension from the delegate for its expired operations, and cancels the expired
    /// operations of waiters.
    func expire(at now: Deadline, _ owner: any PartOwner) {
        channel?.retryIfDue(at: now)
        if let late = ask(reads.takeLate(at: now), owner, { .extendRead(operation: $0, seconds: $1) }) {
            events.append(.readTimedOut(late))
        }
        if let late = ask(writes.takeLate(at: now), owner, { .extendWrite(operation: $0, seconds: $1) }) {
            events.append(.writeTimedOut(late))
        }
        // Each waiter has a separate deadline, regardless of its operation's position in the queue.
        while let waiter = reads.packets.lateWaiter(at: now) { _ = cancel(waiter, waiter.lateError) }
        while let waiter = writes.packets.lateWaiter(at: now) { _ = cancel(waiter, waiter.lateError) }
    }

    /// Creates the event for the delegate. The delegate's reply is posted to `owner` as a message.
    private func ask(
        _ late: LateOperation?, _ owner: any PartOwner, _ message: @escaping @Sendable (UInt32, Double) -> ConnectionMessage
    ) -> TimedOutOperation? {
        late.map { late in TimedOutOperation(late) { [weak owner, number = late.number] in owner?.post(message(number, $0)) } }
    }

    /// Applies the delegate's reply. It has no effect on any operation other than `number`.
    func extendRead(_ number: UInt32, by seconds: Double) -> Step {
        guard let timeout = reads.packets.extend(number, by: seconds) else { return .goesOn }
        let error = AsyncSocketError.timeout(.readTimeout, .read, seconds: timeout)
        guard configuration.value.keepsConnectionOnReadTimeout else { return .ends(error) }
        abandonRead(error)
        needsPump = true
        return .goesOn
    }

    /// Applies the delegate's reply. It has no effect on any operation other than `number`.
    func extendWrite(_ number: UInt32, by seconds: Double) -> Step {
        guard let timeout = writes.packets.extend(number, by: seconds) else { return .goesOn }
        return .ends(.timeout(.writeTimeout, .write, seconds: timeout))
    }

    /// Cancels the operation of `waiter` with `error`. Returns `false` if that operation is not queued.
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

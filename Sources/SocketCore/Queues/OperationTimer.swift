/// The clock of the read or write that is current. It starts when the operation becomes current, not when it
/// was queued.
package struct OperationTimer {
    /// The number of the current operation; it grows by one with each that is complete, so that a late answer
    /// finds its own or none.
    package private(set) var operation: UInt64 = 0
    /// When the operation became current, if it is to end by a certain time.
    private var began = Deadline.distantPast
    package private(set) var deadline: Deadline?
    private var isStarted = false

    /// The current operation is complete, or there is none any more.
    package mutating func advance() {
        operation += 1
        stop()
    }

    /// Starts the clock of the current operation, unless it runs. Negative `seconds`: it never runs out.
    package mutating func startIfNeeded(seconds: Double) {
        guard !isStarted else { return }
        isStarted = true
        guard seconds >= 0 else { return }
        began = .now
        deadline = Deadline(after: seconds)
    }

    /// The time since the operation became current, once its deadline has passed; the deadline is then taken
    /// away.
    package mutating func takeExpiry(at now: Deadline) -> Double? {
        guard let deadline, deadline <= now else { return nil }
        self.deadline = nil
        return now.seconds(since: began)
    }

    /// Lets the operation go on for `seconds` more.
    package mutating func extend(by seconds: Double) {
        deadline = Deadline(after: seconds)
    }

    private mutating func stop() {
        deadline = nil
        isStarted = false
    }
}

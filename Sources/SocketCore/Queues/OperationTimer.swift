/// The clock of the read or write that is current. It starts when the operation becomes current, not when it
/// was queued.
struct OperationTimer {
    /// The number of the current operation; it grows by one with each that is complete, so that a late answer
    /// finds its own or none.
    private(set) var operation: UInt64 = 0
    /// When the operation became current, if it is to end by a certain time.
    private var began = Deadline.distantPast
    private(set) var deadline: Deadline?
    private var isStarted = false

    /// The current operation is complete, or no operation is current any more.
    mutating func advance() {
        operation += 1
        stop()
    }

    /// Starts the clock of the current operation, unless it runs. Negative `seconds`: it never runs out.
    mutating func startIfNeeded(seconds: Double) {
        guard !isStarted else { return }
        isStarted = true
        guard seconds >= 0 else { return }
        began = .now
        deadline = Deadline(after: seconds)
    }

    /// The time since the operation became current, once its deadline has passed; the deadline is then taken
    /// away.
    mutating func takeExpiry(at now: Deadline) -> Double? {
        guard let deadline, deadline <= now else { return nil }
        self.deadline = nil
        return now.seconds(since: began)
    }

    /// Lets the operation go on for `seconds` more.
    mutating func extend(by seconds: Double) {
        deadline = Deadline(after: seconds)
    }

    private mutating func stop() {
        deadline = nil
        isStarted = false
    }
}

/// An operation that has taken too long.
package struct LateOperation {
    /// The number of the operation, for the answer to the question whether it may go on.
    package let number: UInt64
    package let elapsed: Double
    package let progress: OperationProgress
    /// The delegate is asked whether the operation may go on; otherwise it ends.
    package let isDelegates: Bool
}

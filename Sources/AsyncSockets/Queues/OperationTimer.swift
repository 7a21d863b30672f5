internal import SocketCore

/// The clock of the read or write that is current. It starts when the operation becomes current, not when it
/// was queued.
struct OperationTimer {
    // In 24 bytes: every connection has two of these.

    /// The number of the current operation. It grows with each that is complete, so that a late answer finds
    /// its own or none.
    private(set) var number: UInt32 = 0
    private var isStarted = false
    /// The seconds that the operation had so far: its timeout, and each extension.
    private var granted = 0.0
    private var end = Deadline.never

    /// No operation is current that may take too long.
    var isEndless: Bool { end.isNever }

    var deadline: Deadline? { end.isNever ? nil : end }

    /// The current operation is complete, or no operation is current any more.
    mutating func advance() {
        number &+= 1
        end = .never
        isStarted = false
    }

    /// Starts the clock of the current operation, unless it runs. Negative `seconds`: it never runs out.
    mutating func startIfNeeded(seconds: Double) {
        guard !isStarted else { return }
        isStarted = true
        guard seconds >= 0 else { return }
        granted = seconds
        end = Deadline(after: seconds) ?? .never
    }

    /// The current operation, once its deadline has passed; the deadline is then taken away.
    mutating func takeLate(
        at now: Deadline, _ progress: OperationProgress?
    ) -> LateOperation? {
        guard end <= now else { return nil }
        end = .never
        guard let progress else { return nil }
        return LateOperation(number: number, elapsed: granted, progress: progress)
    }

    /// Lets a late operation go on for `seconds` more; the time it had, when it is to end now. Nil, and
    /// nothing changes, when it is not the current one any more.
    mutating func extend(_ number: UInt32, by seconds: Double, _ timeout: Double?) -> Double? {
        guard number == self.number, let timeout else { return nil }
        guard seconds > 0 else { return timeout }
        granted += seconds
        end = Deadline(after: seconds) ?? .never
        return nil
    }
}

/// An operation that has taken too long.
struct LateOperation {
    /// The number of the operation, for the answer to the question whether it may go on.
    let number: UInt32
    /// The seconds that it had: exactly its timeout, and the extensions. Programs compare it with those.
    let elapsed: Double
    let progress: OperationProgress
}

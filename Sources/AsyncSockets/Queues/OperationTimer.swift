internal import SocketCore

/// The timer of the current read or write. It starts when the operation becomes current, not when it is
/// queued.
struct OperationTimer {
    // Packed into 24 bytes, because every connection has two.

    /// The number of the current operation. It increases with each operation that completes or is removed, so
    /// that a late decision cannot affect a different operation.
    private(set) var number: UInt32 = 0
    private(set) var isStarted = false
    /// The total seconds granted to the operation: its timeout plus any extensions.
    private var granted = 0.0
    private var end = Deadline.never

    var isEndless: Bool { end.isNever }

    var deadline: Deadline? { end.isNever ? nil : end }

    /// Called when the current operation completes or is no longer current.
    mutating func advance() {
        number &+= 1
        end = .never
        isStarted = false
    }

    /// Starts the timer for the current operation, unless it is already running. If `seconds` is negative, it
    /// never expires.
    mutating func startIfNeeded(seconds: Double) {
        guard !isStarted else { return }
        isStarted = true
        guard seconds >= 0 else { return }
        granted = seconds
        end = Deadline(after: seconds) ?? .never
    }

    /// Returns the current operation if its deadline has passed, and clears the deadline.
    mutating func takeLate(
        at now: Deadline, _ progress: OperationProgress?
    ) -> LateOperation? {
        guard end <= now else { return nil }
        end = .never
        guard let progress else { return nil }
        return LateOperation(number: number, elapsed: granted, progress: progress)
    }

    /// Extends a late operation by `seconds`. Returns `timeout` if the operation must fail now. Returns
    /// `nil`, without changing anything, if it is no longer the current operation.
    mutating func extend(_ number: UInt32, by seconds: Double, _ timeout: Double?) -> Double? {
        guard number == self.number, let timeout else { return nil }
        guard seconds > 0 else { return timeout }
        granted += seconds
        end = Deadline(after: seconds) ?? .never
        return nil
    }
}

struct LateOperation {
    /// The number of the operation, used to pass back the decision whether to extend it.
    let number: UInt32
    /// The seconds granted so far. This is exactly the timeout plus any extensions, because programs compare
    /// it with their own values.
    let elapsed: Double
    let progress: OperationProgress
}

/// A snapshot of the progress of an incomplete read or write.
public struct OperationProgress: Sendable, Hashable {
    /// The tag of the operation.
    public let tag: Int
    /// The number of bytes that have arrived or, for a write, that have been passed to the kernel or to TLS.
    public let bytesDone: Int
    /// The total number of bytes, or `nil` for a read of unknown length.
    public let total: Int?

    package init(tag: Int, bytesDone: Int, total: Int?) {
        self.tag = tag
        self.bytesDone = bytesDone
        self.total = total
    }

    /// The completed fraction, from 0 to 1, or `nil` if the total is unknown.
    public var fraction: Double? {
        guard let total else { return nil }
        return total == 0 ? 1 : Double(bytesDone) / Double(total)
    }
}

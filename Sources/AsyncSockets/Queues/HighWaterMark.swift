/// Whether a queue is so full that its user should stop for a while.
struct HighWaterMark {
    /// The mark was delivered, and the queue has not been down to half of it since.
    private(set) var isAbove = false

    /// The number that waits, once, when it has reached `mark`.
    mutating func takeHigh(_ waiting: Int, _ mark: Int?) -> Int? {
        guard let mark, mark > 0, !isAbove, waiting >= mark else { return nil }
        isAbove = true
        return waiting
    }

    /// The number that waits, once, when it is down to half of `mark`.
    mutating func takeLow(_ waiting: Int, _ mark: Int?) -> Int? {
        guard isAbove, waiting <= (mark ?? 0) / 2 else { return nil }
        isAbove = false
        return waiting
    }
}

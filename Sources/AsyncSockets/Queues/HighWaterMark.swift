/// Whether a queue is so full that its user should pause.
struct HighWaterMark {
    /// Whether the high-water mark has been reported and the queue has not dropped to half the mark since.
    private(set) var isAbove = false

    /// Returns the number of waiting bytes if it has reached `mark`, but only once.
    mutating func takeHigh(_ waiting: Int, _ mark: Int?) -> Int? {
        guard let mark, mark > 0, !isAbove, waiting >= mark else { return nil }
        isAbove = true
        return waiting
    }

    /// Returns the number of waiting bytes if it has dropped to half of `mark`, but only once.
    mutating func takeLow(_ waiting: Int, _ mark: Int?) -> Int? {
        guard isAbove, waiting <= (mark ?? 0) / 2 else { return nil }
        isAbove = false
        return waiting
    }
}

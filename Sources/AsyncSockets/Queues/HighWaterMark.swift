/// Whether a queue is so full that its user should pause.
struct HighWaterMark {
    /// Whether the high-water mark has been reported and the queue has not dropped to half the mark since.
    private(set) var isAbove = false

    /// Returns the amount waiting, once, when it reaches `mark`.
    mutating func takeHigh(_ waiting: Int, _ mark: Int?) -> Int? {
        guard let mark, mark > 0, !isAbove, waiting >= mark else { return nil }
        isAbove = true
        return waiting
    }

    /// Returns the amount waiting, once, when it drops to half of `mark`.
    mutating func takeLow(_ waiting: Int, _ mark: Int?) -> Int? {
        guard isAbove, waiting <= (mark ?? 0) / 2 else { return nil }
        isAbove = false
        return waiting
    }
}

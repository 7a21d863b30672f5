internal import FoundationEssentials

/// The sending half of a connection: the writes that wait, the clock of the oldest, and how full the queue
/// is.
///
/// A class for the same reason as `ReadHalf`.
package final class WriteHalf {
    @exclusivity(unchecked) package var queue = WriteQueue()
    @exclusivity(unchecked) package var timer = OperationTimer()
    /// The caller wants to write nothing after what is queued.
    @exclusivity(unchecked) package var isClosing = false
    /// The delegate has been told of the high-water mark, and the queue has not been down to half of it
    /// since.
    @exclusivity(unchecked) private var isAboveHighWater = false

    package init() {}

    /// Removes the oldest write once nothing of it waits in this process, and hands out its completion.
    package func removeComplete() -> Completion<Void>? {
        guard let completion = queue.removeHandedOn() else { return nil }
        timer.advance()
        return completion
    }

    /// Removes the write of `waiter`, or detaches it when some of its bytes are on their way.
    package func cancel(_ waiter: AnyObject) -> Cancellation {
        let isOldest = queue.completion?.answers(waiter) ?? false
        let result = queue.cancel(waiter)
        if isOldest, result == .removed { timer.advance() }
        return result
    }

    /// Starts the clock of the oldest write, unless it runs.
    package func startClock() {
        if let seconds = queue.timeout { timer.startIfNeeded(seconds: seconds) }
    }

    /// The bytes that wait, once, when they have reached `mark`.
    package func takeHighWater(_ mark: Int?) -> Int? {
        guard let mark, mark > 0, !isAboveHighWater, queue.waitingByteCount >= mark else { return nil }
        isAboveHighWater = true
        return queue.waitingByteCount
    }

    /// The bytes that wait, once, when they are down to half of `mark`.
    package func takeLowWater(_ mark: Int?) -> Int? {
        guard isAboveHighWater, queue.waitingByteCount <= (mark ?? 0) / 2 else { return nil }
        isAboveHighWater = false
        return queue.waitingByteCount
    }

    /// True when `count` more bytes would be too many. What can be sent does not count, nor do files, and one
    /// write alone is never too much.
    package func wouldExceed(_ limit: Int, with count: Int) -> Bool {
        queue.waitingMemoryByteCount > 0 && count > limit - queue.waitingMemoryByteCount
    }
}

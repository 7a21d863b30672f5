internal import SocketBuffers

/// The tasks that serve a listener's connections. As in a task group, `cancel()` cancels all of them and
/// `ended()` waits for all of them.
///
/// This is not a task group, because in Swift 6.3 the time to finish a child is proportional to the number of
/// children: the runtime searches a list under a lock, which takes 9 µs with 1,000 children and 102 µs with
/// 10,000. Here the table finds each task by its index.
final class ServingTasks: Sendable {
    fileprivate enum Place {
        case free(next: Int?)
        /// Reserved for a task that is not stored yet.
        case reserved
        /// The task finished before it was stored.
        case ended
        case taken(Task<Void, Never>)
    }

    fileprivate struct State {
        var places: [Place] = []
        var firstFree: Int?
        /// The number of tasks that have not finished.
        var count = 0
        /// The number of places reserved for tasks that have not been stored yet, including tasks that have
        /// already finished.
        var reservedCount = 0
        var isCancelled = false
        var waiter: UnsafeContinuation<Void, Never>?
    }

    private let state = Locked(State())

    var count: Int { state.withLock { $0.count } }

    /// The size of the table: the largest number of simultaneous tasks since it was last empty.
    var storedCount: Int { state.withLock { $0.places.count } }

    /// Reserves a place for a task. The last thing the task does is to call `end(_:)`.
    func reserve() -> Int { state.withLock { $0.reserve() } }

    /// Stores a task, which may already have finished. After `cancel()`, it is cancelled immediately.
    func put(_ task: Task<Void, Never>, at place: Int) {
        if state.withLock({ $0.put(task, at: place) }) { task.cancel() }
    }

    func end(_ place: Int) {
        let (task, waiter) = state.withLock { $0.end(place) }
        withExtendedLifetime(task) {}
        waiter?.resume()
    }

    /// Cancels all tasks, including tasks that are started later.
    func cancel() {
        let tasks = state.withLock { state in
            state.isCancelled = true
            return state.places.compactMap { place in if case .taken(let task) = place { task } else { nil } }
        }
        for task in tasks { task.cancel() }
    }

    /// Returns when all tasks have finished. Call this once, after the last `start`.
    nonisolated(nonsending) func ended() async {
        await withUnsafeContinuation { continuation in
            let isOver = state.withLock { state in
                guard state.count > 0 else { return true }
                state.waiter = continuation
                return false
            }
            if isOver { continuation.resume() }
        }
    }
}

fileprivate extension ServingTasks.State {
    mutating func reserve() -> Int {
        (count, reservedCount) = (count + 1, reservedCount + 1)
        guard let place = firstFree, case .free(let next) = places[place] else {
            places.append(.reserved)
            return places.count - 1
        }
        firstFree = next
        places[place] = .reserved
        return place
    }

    /// Returns whether the caller must cancel the task.
    mutating func put(_ task: Task<Void, Never>, at place: Int) -> Bool {
        reservedCount -= 1
        guard case .reserved = places[place] else {
            release(place)
            return false
        }
        places[place] = .taken(task)
        return isCancelled
    }

    /// Returns the task, which the caller must release outside the lock, and after the last task also the
    /// continuation of `ended()`.
    mutating func end(_ place: Int) -> (Task<Void, Never>?, UnsafeContinuation<Void, Never>?) {
        count -= 1
        let task: Task<Void, Never>?
        if case .taken(let taken) = places[place] {
            task = taken
            release(place)
        } else {
            task = nil
            places[place] = .ended
        }
        return (task, count == 0 ? waiter.take() : nil)
    }

    private mutating func release(_ place: Int) {
        guard count + reservedCount > 0 else {
            (places, firstFree) = ([], nil)
            return
        }
        places[place] = .free(next: firstFree)
        firstFree = place
    }
}

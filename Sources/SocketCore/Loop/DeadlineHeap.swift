/// Deadlines, the earliest first: a binary heap.
struct DeadlineHeap {
    private var entries: [(deadline: Deadline, registration: LoopRegistration)] = []

    var earliest: Deadline? { entries.first?.deadline }
    var count: Int { entries.count }

    /// Drops the entries that do not count any more. A sorted array is a heap.
    mutating func removeAll(where isStale: (Deadline, LoopRegistration) -> Bool) {
        entries.removeAll { isStale($0.deadline, $0.registration) }
        entries.sort { $0.deadline < $1.deadline }
    }

    mutating func insert(_ deadline: Deadline, _ registration: LoopRegistration) {
        entries.append((deadline, registration))
        var child = entries.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard entries[child].deadline < entries[parent].deadline else { return }
            entries.swapAt(child, parent)
            child = parent
        }
    }

    mutating func removeEarliest() -> LoopRegistration? {
        guard let first = entries.first else { return nil }
        let last = entries.removeLast()
        if !entries.isEmpty {
            entries[0] = last
            siftDown()
        }
        return first.registration
    }

    private mutating func siftDown() {
        var parent = 0
        while true {
            var smallest = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < entries.count && entries[child].deadline < entries[smallest].deadline {
                smallest = child
            }
            if smallest == parent { return }
            entries.swapAt(parent, smallest)
            parent = smallest
        }
    }
}

internal import SocketBuffers

/// The handlers of an event loop, their deadlines, and the turns they requested.
struct LoopTable {
    struct Ready {
        let handler: any EventHandler
        let events: LoopEvents

        @inline(__always)
        var address: UInt { LoopTable.address(of: handler) }
    }

    private struct Slot {
        var generation: UInt32 = 0
        var handler: (any EventHandler)?
        var deadline: Deadline?
        var isResumed = false
    }

    private var slots: [Slot] = []
    private var freeIndices: [UInt32] = []
    private var deadlines = DeadlineHeap()
    private var resumed: [LoopRegistration] = []
    private(set) var turnCount = 0
    /// The peak number of registrations since `noteDeparture()` last returned `true`.
    private var peak = 0
    /// Fewer closed connections than this free little memory: less than 6 MB, even with half-open
    /// handshakes, which need the most memory.
    static let leastDeparture = 128
    /// Whether the loop should keep blocks (`HeapTrimmer`, rule 5).
    private var wantsBlocks = false

    var hasResumed: Bool { !resumed.isEmpty }
    var earliestDeadline: Deadline? { deadlines.earliest }
    var registrationCount: Int { slots.count - freeIndices.count }

    mutating func insert(_ handler: any EventHandler) -> LoopRegistration {
        let index = freeIndices.popLast() ?? UInt32(slots.count)
        if index == slots.count { slots.append(Slot()) }
        slots[Int(index)].handler = handler
        if registrationCount > peak {
            peak = registrationCount
            if peak % Self.leastDeparture == 0 { wantsBlocks = true }
        }
        return LoopRegistration(index: index, generation: slots[Int(index)].generation)
    }

    /// Returns the handler, so that the caller can release it outside the lock.
    mutating func remove(_ registration: LoopRegistration) -> (any EventHandler)? {
        guard isCurrent(registration) else { return nil }
        let handler = slots[Int(registration.index)].handler
        slots[Int(registration.index)] = Slot(generation: registration.generation &+ 1)
        freeIndices.append(registration.index)
        dropStaleDeadlinesIfMany()
        return handler
    }

    /// Returns `true` if the number of registrations has dropped from its peak by an eighth, and by at least
    /// `leastDeparture`. Resets the peak in that case.
    mutating func noteDeparture() -> Bool {
        let count = registrationCount
        guard peak - count >= Self.leastDeparture, count <= peak - peak / 8 else { return false }
        peak = count
        wantsBlocks = true
        return true
    }

    /// Returns `true` once after the number of registrations has grown by `leastDeparture`, and once after
    /// `noteDeparture()` has returned `true`.
    mutating func takeWishForBlocks() -> Bool {
        defer { wantsBlocks = false }
        return wantsBlocks
    }

    func handler(of registration: LoopRegistration) -> (any EventHandler)? {
        let index = Int(registration.index)
        // Does not call `isCurrent`, which would cost an additional retain and release.
        guard index < slots.count, slots[index].generation == registration.generation else { return nil }
        return slots[index].handler
    }

    func handler(at address: UInt) -> (any EventHandler)? {
        slots.lazy.compactMap(\.handler).first { Self.address(of: $0) == address }
    }

    @inline(__always)
    static func address(of handler: AnyObject) -> UInt {
        UInt(bitPattern: Unmanaged.passUnretained(handler).toOpaque())
    }

    // MARK: - Turns

    /// Returns `false` if the registration already has a pending turn or was removed.
    mutating func resume(_ registration: LoopRegistration) -> Bool {
        guard isCurrent(registration), !slots[Int(registration.index)].isResumed else { return false }
        slots[Int(registration.index)].isResumed = true
        resumed.append(registration)
        return true
    }

    /// Moves the handlers with pending turns to the back of `ready`.
    mutating func takeResumed(into ready: inout Ring<Ready>) {
        turnCount &+= resumed.count
        for registration in resumed where isCurrent(registration) {
            slots[Int(registration.index)].isResumed = false
            if let handler = slots[Int(registration.index)].handler { ready.append(Ready(handler: handler, events: .resumed)) }
        }
        resumed.removeAll(keepingCapacity: true)
    }

    // MARK: - Deadlines

    mutating func setDeadline(_ deadline: Deadline?, of registration: LoopRegistration) {
        guard isCurrent(registration) else { return }
        slots[Int(registration.index)].deadline = deadline
        guard let deadline else { return }
        deadlines.insert(deadline, registration)
        dropStaleDeadlinesIfMany()
    }

    /// If there are many more entries than registrations, most of the entries are stale, because each
    /// registration has at most one deadline.
    private mutating func dropStaleDeadlinesIfMany() {
        guard deadlines.count > 2 * registrationCount + 64 else { return }
        deadlines.removeAll { [slots] deadline, registration in
            let slot = slots[Int(registration.index)]
            return slot.generation != registration.generation || slot.deadline != deadline
        }
    }

    /// Includes stale entries for removed registrations and replaced deadlines.
    var deadlineCount: Int { deadlines.count }

    /// Moves the handlers with expired deadlines to the back of `ready`.
    mutating func takeExpired(at now: Deadline, into ready: inout Ring<Ready>) {
        while let earliest = deadlines.earliest, earliest <= now, let registration = deadlines.removeEarliest() {
            // A stale entry stays in the heap until its deadline passes.
            guard isCurrent(registration), slots[Int(registration.index)].deadline == earliest else { continue }
            slots[Int(registration.index)].deadline = nil
            if let handler = slots[Int(registration.index)].handler { ready.append(Ready(handler: handler, events: .deadline)) }
        }
    }

    private func isCurrent(_ registration: LoopRegistration) -> Bool {
        registration.index < slots.count
            && slots[Int(registration.index)].generation == registration.generation
            && slots[Int(registration.index)].handler != nil
    }
}

/// A binary heap of deadlines, the earliest first.
struct DeadlineHeap {
    private var entries: [(deadline: Deadline, registration: LoopRegistration)] = []

    var earliest: Deadline? { entries.first?.deadline }
    var count: Int { entries.count }

    /// Restores the heap by sorting, because a sorted array is a valid heap.
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

// Rules of the slots:
//  1. There are at most `limit` handshakes at a time. A source has at most its share (`SourceKey.share`), so
//     that a client cannot shut out other clients. Connections without a source have no share. The listener
//     accepts no connections while tasks wait for the limit itself.
//  2. The tasks of one source enter in the order of their arrival. Sources take turns.
//  3. Each operation takes constant time, because strangers choose the number of handshakes and sources.

internal import SocketBuffers
internal import SocketCore

/// Limits the simultaneous handshakes of a listener.
final class HandshakeSlots: Sendable {
    private typealias Waiter = UnsafeContinuation<Void, Never>

    private struct Source {
        var taken = 0
        var waiting = Line<Waiter>()
        /// Whether the source is in the line of `State.turns`: it has waiting tasks, and room in its share.
        var hasTurn = false
    }

    private struct State {
        var limit: Int
        /// Whether the limit is lifted.
        var isOpen = false
        var taken = 0
        var waitingCount = 0
        var sources: [SourceKey?: Source] = [:]
        var turns = Line<SourceKey?>()

        /// The accepting tasks that wait until no task has to wait for the limit.
        var accepting: [Waiter] = []

        var hasRoom: Bool { isOpen || taken < limit }

        func hasRoom(for source: SourceKey?, _ taken: Int) -> Bool {
            isOpen || taken < (source == nil ? limit : SourceKey.share(of: limit))
        }

        // Sources are changed in place, because a copy would include their waiting tasks.

        /// Adds a source to the line of turns, if it has waiting tasks and room.
        mutating func enqueue(_ index: Dictionary<SourceKey?, Source>.Index) {
            let (key, source) = sources[index]
            guard !source.hasTurn, !source.waiting.isEmpty, hasRoom(for: key, source.taken) else { return }
            sources.values[index].hasTurn = true
            turns.append(key)
        }

        /// Adds the waiting sources that have room since a limit changed.
        mutating func enqueueAll() {
            for index in sources.indices { enqueue(index) }
        }

        /// Removes and returns the tasks that may continue.
        mutating func admit() -> [Waiter] {
            var next: [Waiter] = []
            while hasRoom, let key = turns.removeFirst() {
                guard let index = sources.index(forKey: key) else { continue }
                sources.values[index].hasTurn = false
                // A limit may have been lowered since the source was added to the line.
                if hasRoom(for: key, sources.values[index].taken), let waiter = sources.values[index].waiting.removeFirst() {
                    sources.values[index].taken += 1
                    (taken, waitingCount) = (taken + 1, waitingCount - 1)
                    next.append(waiter)
                }
                enqueue(index)
            }
            guard hasRoom, turns.isEmpty else { return next }
            defer { accepting = [] }
            waitingCount -= accepting.count
            return next + accepting
        }
    }

    private let state: Locked<State>

    init(limit: Int) {
        state = Locked(State(limit: limit))
    }

    var limit: Int {
        get { state.withLock { $0.limit } }
        set {
            admit { state in
                state.limit = newValue
                state.enqueueAll()
            }
        }
    }

    /// Lifts the limit once no more connections are accepted, so that no task keeps waiting.
    func open() {
        admit { state in
            state.isOpen = true
            state.enqueueAll()
        }
    }

    var takenCount: Int { state.withLock { $0.taken } }

    var waitingCount: Int { state.withLock { $0.waitingCount } }

    /// The number of sources with slots or waiting tasks.
    var sourceCount: Int { state.withLock { $0.sources.count } }

    /// Takes a slot as soon as one is free. Cancelled tasks keep their place in the queue, because the tasks
    /// ahead of them are also cancelled and release their slots.
    ///
    /// - Parameter source: `nil` if only the limit of all handshakes applies.
    nonisolated(nonsending) func enter(_ source: SourceKey? = nil) async {
        await withUnsafeContinuation { continuation in
            let isFree = state.withLock { state in
                if state.hasRoom, state.hasRoom(for: source, state.sources[source]?.taken ?? 0) {
                    state.sources[source, default: Source()].taken += 1
                    state.taken += 1
                    return true
                }
                state.sources[source, default: Source()].waiting.append(continuation)
                state.waitingCount += 1
                if let index = state.sources.index(forKey: source) { state.enqueue(index) }
                return false
            }
            if isFree { continuation.resume() }
        }
    }

    /// Releases the slot and passes it to the next waiting task.
    func leave(_ source: SourceKey? = nil) {
        admit { state in
            guard let index = state.sources.index(forKey: source) else { return }
            state.sources.values[index].taken -= 1
            state.taken -= 1
            state.enqueue(index)
            let entry = state.sources.values[index]
            if entry.taken == 0, entry.waiting.isEmpty { state.sources.remove(at: index) }
        }
    }

    /// Returns when a slot is free, and tasks wait only because their source has its share.
    nonisolated(nonsending) func room() async {
        await withUnsafeContinuation { continuation in
            let isFree = state.withLock { state in
                if state.hasRoom && state.turns.isEmpty { return true }
                state.accepting.append(continuation)
                state.waitingCount += 1
                return false
            }
            if isFree { continuation.resume() }
        }
    }

    private func admit(after change: (inout State) -> Void) {
        let next = state.withLock { state in
            change(&state)
            return state.admit()
        }
        for waiter in next { waiter.resume() }
    }
}

/// Elements in the order of their arrival.
private struct Line<Element> {
    private var elements: [Element] = []
    /// How many of `elements` have been removed.
    private var removed = 0

    var isEmpty: Bool { removed == elements.count }

    mutating func append(_ element: Element) { elements.append(element) }

    /// Moving all later elements each time would not take constant time, and under a steady load the array
    /// never becomes empty. Removed elements are therefore dropped once they fill half the array.
    mutating func removeFirst() -> Element? {
        guard !isEmpty else { return nil }
        let first = elements[removed]
        removed += 1
        if isEmpty {
            (elements, removed) = ([], 0)
        } else if removed >= 32 && removed * 2 >= elements.count {
            elements.removeFirst(removed)
            removed = 0
        }
        return first
    }
}

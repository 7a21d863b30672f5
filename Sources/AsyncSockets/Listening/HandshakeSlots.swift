// Rules of the slots:
//  1. There are at most `limit` handshakes at a time. A source has at most its share (`SourceKey.share`), so
//     that a client cannot shut out other clients. Connections without a source have no share.
//  2. The tasks of one source enter in the order of their arrival. Sources take turns. A source without a
//     handshake takes its turn before the other sources.
//  3. At the limit, the oldest handshake of the largest source gives way to a task of a source that has no
//     handshake, or at least two fewer. It must be a second old. One handshake gives way at a time, and the
//     listener pauses until the task has its slot.
//  4. Each operation takes constant time, because strangers choose the number of handshakes and sources.

internal import SocketBuffers
internal import SocketCore

/// Limits the simultaneous handshakes of a listener.
final class HandshakeSlots: Sendable {
    private typealias Waiter = UnsafeContinuation<Void, Never>

    private struct Source {
        var taken = 0
        var waiting = Line<Waiter>()
        /// Whether the source is in a line: it has waiting tasks, and room in its share.
        var hasTurn = false
    }

    private struct State {
        var limit: Int
        /// Whether the limit is lifted.
        var isOpen = false
        var taken = 0
        var waitingCount = 0
        var sources: [SourceKey?: Source] = [:]
        // Sources with waiting tasks, and room in their share.
        /// Sources that had no handshake when they were added.
        var newcomers = Line<SourceKey?>()
        var turns = Line<SourceKey?>()

        /// The handshakes that may have to give way.
        var trials = SourceGroups<HandshakeTrial>()
        /// The handshake that is giving way.
        var leaving: HandshakeTrial?
        var gaveWayCount = 0
        /// Rings when the oldest handshake of the largest source is old enough.
        var alarm: Alarm?

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
            if source.taken == 0 { newcomers.append(key) } else { turns.append(key) }
        }

        /// Whether a task needs the slot of another source.
        var waitsForOthers: Bool {
            if !newcomers.isEmpty || sources[nil]?.waiting.isEmpty == false { return true }
            // Equal sources would otherwise replace each other's handshakes.
            return turns.prefix(Self.looks).contains { (sources[$0]?.taken ?? 0) + 1 < trials.largestUnprovenCount }
        }

        /// Whether the listener may accept. At the limit, it continues as long as handshakes can give way.
        var isAccepting: Bool { (hasRoom || trials.unprovenCount > 0) && !waitsForOthers }

        /// How many waiting sources `waitsForOthers` examines, so that its time is bounded.
        private static var looks: Int { 8 }

        /// Adds the waiting sources that have room since a limit changed.
        mutating func enqueueAll() {
            for index in sources.indices { enqueue(index) }
        }

        /// Removes and returns the tasks that may continue.
        mutating func admit() -> [Waiter] {
            var next: [Waiter] = []
            while hasRoom, let key = newcomers.removeFirst() ?? turns.removeFirst() {
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
            guard isAccepting else { return next }
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

    /// The number of connections that wait for a slot.
    var waitingConnectionCount: Int { state.withLock { $0.waitingCount - $0.accepting.count } }

    /// The number of sources with slots or waiting tasks.
    var sourceCount: Int { state.withLock { $0.sources.count } }

    /// The number of handshakes that gave way.
    var gaveWayCount: Int { state.withLock { $0.gaveWayCount } }

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
            if isFree { continuation.resume() } else { makeRoom() }
        }
    }

    // MARK: - Giving way

    /// Starts a handshake in a slot of `source`. Until `leave(_:_:)` is called, it may have to give way.
    func begin(_ connection: StreamConnection, from source: SourceKey) -> HandshakeTrial? {
        var trial: HandshakeTrial?
        admit { state in
            trial = HandshakeTrial(of: connection, in: state.trials.enter(source), &state.trials)
        }
        return trial
    }

    /// Makes a handshake give way if a task needs its slot.
    private func makeRoom() {
        while true {
            let trial = state.withLock { state -> HandshakeTrial? in
                guard state.waitsForOthers, state.leaving == nil else { return nil }
                switch state.trials.candidate(at: .now) {
                case .none: return nil
                case .later(let time):
                    if state.alarm == nil { state.alarm = Alarm(at: time) { [weak self] in self?.ring() } }
                    return nil
                case .member(let trial):
                    trial.leave(&state.trials)
                    state.leaving = trial
                    return trial
                }
            }
            guard let trial else { return }
            let gaveWay = trial.connection.giveWay(.gaveWayToHandshake)
            state.withLock { state in
                if gaveWay { state.gaveWayCount += 1 } else if state.leaving === trial { state.leaving = nil }
            }
            if gaveWay { return }
        }
    }

    private func ring() {
        state.withLock { $0.alarm = nil }
        makeRoom()
    }

    // MARK: - Leaving

    /// Releases the slot and passes it to the next waiting task.
    func leave(_ source: SourceKey? = nil, _ trial: HandshakeTrial? = nil) {
        admit { state in
            if let trial {
                trial.leave(&state.trials)
                state.trials.leave(trial.source)
                if state.leaving === trial { state.leaving = nil }
            }
            guard let index = state.sources.index(forKey: source) else { return }
            state.sources.values[index].taken -= 1
            state.taken -= 1
            state.enqueue(index)
            let entry = state.sources.values[index]
            if entry.taken == 0, entry.waiting.isEmpty { state.sources.remove(at: index) }
        }
    }

    /// Returns when more connections may be accepted.
    nonisolated(nonsending) func room() async {
        await withUnsafeContinuation { continuation in
            let isFree = state.withLock { state in
                if state.isAccepting { return true }
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
        makeRoom()
    }
}

/// A handshake in progress.
final class HandshakeTrial: Sendable {
    fileprivate let connection: StreamConnection
    fileprivate let source: SourceGroups<HandshakeTrial>.Slot
    /// `nil` after the handshake was chosen to give way.
    private let place = Locked<SourceGroups<HandshakeTrial>.Place?>(nil)

    fileprivate init(
        of connection: StreamConnection, in source: SourceGroups<HandshakeTrial>.Slot,
        _ trials: inout SourceGroups<HandshakeTrial>
    ) {
        (self.connection, self.source) = (connection, source)
        let place = trials.append(self, of: source, at: .now)
        self.place.withLock { $0 = place }
    }

    fileprivate func leave(_ trials: inout SourceGroups<HandshakeTrial>) {
        if let place = place.withLock({ $0.take() }) { trials.remove(place) }
    }
}

/// Elements in the order of their arrival.
private struct Line<Element> {
    private var elements: [Element] = []
    /// How many of `elements` have been removed.
    private var removed = 0

    var isEmpty: Bool { removed == elements.count }

    func prefix(_ count: Int) -> ArraySlice<Element> { elements[removed...].prefix(count) }

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

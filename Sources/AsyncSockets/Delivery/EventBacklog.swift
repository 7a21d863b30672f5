// Rules of the backlog:
//  1. Events leave in the order in which they came, whichever block on the queue takes them.
//  2. A block takes no event that came after it was put on the queue: a block that the user has put there in
//     between keeps its place before that event.
//  3. Blocks are put on the queue at once or, from the loop, when it has handled its batch: one for all
//     sources. A queue that is woken for each event takes the processor away from the loop each time.
//  4. Progress of an operation is added to its progress that waits already: with a slow delegate, the peer
//     cannot fill the memory with events.
//  5. When the delegate has moved to another queue, what waits moves there.
//  6. One block has events at a time; what other blocks were to deliver meanwhile, on another queue, it
//     delivers or passes on.
//  7. While events wait here, none is delivered inline.

internal import SocketBuffers

/// The events of one source that wait for a delegate queue. Any thread may use it.
struct EventBacklog<Event: SocketEvent>: Sendable {
    private struct State {
        var events: [Event] = []
        /// How many events have ever come, and how many have left.
        var arrived = 0
        var left = 0
        /// The loop will put a block on the queue when it has handled its batch.
        var waitsForLoop = false
        /// How many events have a block on a queue.
        var promised = 0
        /// A block has taken events and has not delivered all of them.
        var isOut = false
        /// Called when nothing waits here any more.
        var sequel: (@Sendable () -> Void)?

        mutating func append(_ event: Event) {
            if let last = events.indices.last {
                if events[last].absorb(event) { return }
                // Progress of the other direction may have come in between.
                if events[last].isProgress, last > 0, events[last - 1].absorb(event) { return }
            }
            events.append(event)
            arrived += 1
        }

        /// The events that are promised and have not been taken.
        mutating func next() -> [Event]? {
            let count = promised - left
            isOut = count > 0
            guard isOut else { return nil }
            left = promised
            if count == events.count {
                defer { events = [] }
                return events
            }
            defer { events.removeFirst(count) }
            return Array(events.prefix(count))
        }
    }

    private let state = Locked(State())

    /// Takes all of `events`; returns a ticket when a block has to be put on the queue for them.
    ///
    /// - Parameter isOnLoop: The loop will do that when it has handled its batch.
    func take(_ events: inout Ring<Event>, isOnLoop: Bool) -> Int? {
        state.withLock { state in
            let arrivedBefore = state.arrived
            while let event = events.popFirst() { state.append(event) }
            if state.waitsForLoop || state.arrived == arrivedBefore { return nil }
            state.waitsForLoop = isOnLoop
            return state.arrived
        }
    }

    /// On the loop, when the batch has been handled: the ticket for all that came meanwhile.
    func takeTicket() -> Int {
        state.withLock { state in
            state.waitsForLoop = false
            return state.arrived
        }
    }

    /// The events up to `ticket`, for a block that has them alone; nil when there are none, or when another
    /// block will deliver them.
    func begin(upTo ticket: Int) -> [Event]? {
        state.withLock { state in
            state.promised = max(state.promised, ticket)
            return state.isOut ? nil : state.next()
        }
    }

    /// More events for the block that has delivered its own; nil when there are none, and the block has no
    /// events any more.
    func next() -> [Event]? {
        state.withLock { $0.next() }
    }

    /// Puts back what could not be delivered where the block was.
    func putBack(_ taken: ArraySlice<Event>) {
        state.withLock { state in
            state.events.insert(contentsOf: taken, at: 0)
            state.left -= taken.count
        }
    }

    /// False while events wait or are being delivered, which others must not overtake: then `sequel` is
    /// called when that is over.
    func isIdle(orElse sequel: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            let isIdle = state.events.isEmpty && !state.isOut
            state.sequel = isIdle ? nil : sequel
            return isIdle
        }
    }

    /// The block has no events any more.
    func finish() {
        let sequel = state.withLock { $0.events.isEmpty ? $0.sequel.take() : nil }
        sequel?()
    }
}

// Rules for the backlog:
//  1. Events are delivered in the order of arrival, whichever block on the queue takes them.
//  2. A block takes no event that arrived after the block was enqueued. Therefore, a block that the user
//     enqueues before an event arrives also runs before that event is delivered.
//  3. A block is enqueued immediately or, from the loop, after the loop has handled its batch: one block for
//     all sources. Waking a queue for every event would take the processor away from the loop each time.
//  4. A progress event is merged with a progress event of the same operation that is still queued, so that a
//     peer cannot fill memory with events if the delegate is slow.
//  5. When the delegate moves to another queue, the queued events move to that queue.
//  6. Only one block delivers events at a time. A block that starts on another queue in the meantime takes no
//     events: the first block delivers those events too, or moves them to the delegate's current queue.
//  7. While events are queued in the backlog, no events are delivered inline.

internal import SocketBuffers

/// The events of one source that are queued for a delegate queue. May be used from any thread.
struct EventBacklog<Event: SocketEvent>: Sendable {
    private struct State {
        var events: [Event] = []
        /// The total numbers of events added and taken so far.
        var arrived = 0
        var left = 0
        /// Whether the loop will enqueue a block after it has handled its batch.
        var waitsForLoop = false
        /// The number of events, counted from the first, that the blocks started so far must deliver.
        var promised = 0
        /// Whether a block still holds events that it has not delivered.
        var isOut = false
        /// Called when the backlog has become empty.
        var sequel: (@Sendable () -> Void)?

        mutating func append(_ event: Event) {
            if let last = events.indices.last {
                if events[last].absorb(event) { return }
                // A progress event for the other direction may be in between.
                if events[last].isProgress, last > 0, events[last - 1].absorb(event) { return }
            }
            events.append(event)
            arrived += 1
        }

        /// Takes the events that are promised and have not been taken.
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

    /// Takes all of `events`. Returns a ticket if a block must be enqueued for them.
    ///
    /// - Parameter isOnLoop: Whether the loop will enqueue the block after it has handled its batch.
    func take(_ events: inout Ring<Event>, isOnLoop: Bool) -> Int? {
        state.withLock { state in
            let arrivedBefore = state.arrived
            while let event = events.popFirst() { state.append(event) }
            if state.waitsForLoop || state.arrived == arrivedBefore { return nil }
            state.waitsForLoop = isOnLoop
            return state.arrived
        }
    }

    /// Called on the loop when the batch has been handled. Returns a ticket for all events that have arrived
    /// so far.
    func takeTicket() -> Int {
        state.withLock { state in
            state.waitsForLoop = false
            return state.arrived
        }
    }

    /// Takes the events up to `ticket` for a block, which is then the only block with events. Returns `nil`
    /// if no such events are queued or another block will deliver them.
    func begin(upTo ticket: Int) -> [Event]? {
        state.withLock { state in
            state.promised = max(state.promised, ticket)
            return state.isOut ? nil : state.next()
        }
    }

    /// Takes more events for a block that has delivered its events. Returns `nil` if the backlog has no more
    /// promised events; the block then holds no events.
    func next() -> [Event]? {
        state.withLock { $0.next() }
    }

    /// Reinserts events at the front of the backlog if they could not be delivered on the block's queue.
    func putBack(_ taken: ArraySlice<Event>) {
        state.withLock { state in
            state.events.insert(contentsOf: taken, at: 0)
            state.left -= taken.count
        }
    }

    /// Returns `false` while events are queued or being delivered, because they must be delivered first.
    /// `sequel` is then called when the backlog has become empty.
    func isIdle(orElse sequel: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            let isIdle = state.events.isEmpty && !state.isOut
            state.sequel = isIdle ? nil : sequel
            return isIdle
        }
    }

    /// Called when a block holds no more events.
    func finish() {
        let sequel = state.withLock { $0.events.isEmpty ? $0.sequel.take() : nil }
        sequel?()
    }
}

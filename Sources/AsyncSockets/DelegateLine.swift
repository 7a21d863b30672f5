// Rules of the line:
//  1. Events leave in the order in which they came, whichever block on the queue takes them.
//  2. A block takes no event that came after it was put on the queue: a block that the user has put there in between keeps its place before that event.
//  3. Blocks are put on the queue at once or, from the loop, when it has handled its batch: one for all connections. A queue that is woken for each event
//     takes the processor away from the loop each time.
//  4. Progress of an operation is added to the progress of it that waits already: a slow delegate does not have the peer fill the memory with events.
//  5. When the delegate has moved to another queue, what waits moves there.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore

/// The events of one connection that wait for the delegate queue.
final class DelegateLine: BatchedWork {
    private let relay: DelegateRelay
    private let state = Locked(State())

    fileprivate struct State {
        var events: [DelegateEvent] = []
        /// How many events have ever come, and how many have left.
        var arrived = 0
        var left = 0
        /// The loop will put a block on the queue when it has handled its batch.
        var waitsForLoop = false
    }

    init(to relay: DelegateRelay) {
        self.relay = relay
    }

    /// Inside the turn: sends events on their way.
    ///
    /// - Parameter loop: The loop that is being run on, if it is.
    func send(_ events: inout Ring<DelegateEvent>, to queue: DispatchQueue, on loop: EventLoop?) {
        let ticket = state.withLock { state -> Int? in
            let arrivedBefore = state.arrived
            while let event = events.popFirst() { state.append(event) }
            if state.waitsForLoop || state.arrived == arrivedBefore { return nil }
            state.waitsForLoop = loop != nil
            return state.arrived
        }
        guard let ticket else { return }
        if let loop { return loop.afterBatch(self, on: queue) }
        queue.async { self.run(upTo: ticket, on: queue) }
    }

    /// On the loop, when the batch has been handled.
    func takeTicket() -> Int {
        state.withLock { state in
            state.waitsForLoop = false
            return state.arrived
        }
    }

    /// On `queue`: tells what has come before `ticket` was taken.
    func run(upTo ticket: Int, on queue: DispatchQueue) {
        var events = state.withLock { $0.take(upTo: ticket) }[...]
        guard !events.isEmpty else { return }
        var audience = relay.gatherAudience()
        while let event = events.first {
            if let other = audience.queueInstead(of: queue) {
                state.withLock { $0.putBack(events) }
                return other.async { self.run(upTo: ticket, on: other) }
            }
            events.removeFirst()
            relay.deliver(event, to: &audience)
        }
    }
}

extension DelegateLine.State {
    fileprivate mutating func append(_ event: DelegateEvent) {
        if let place = events.indices.last {
            if events[place].absorb(event) { return }
            // Progress of the other direction may have come in between.
            if events[place].isProgress, place > 0, events[place - 1].absorb(event) { return }
        }
        events.append(event)
        arrived += 1
    }

    fileprivate mutating func take(upTo ticket: Int) -> [DelegateEvent] {
        let count = ticket - left
        guard count > 0 else { return [] }
        left = ticket
        if count == events.count {
            defer { events = [] }
            return events
        }
        defer { events.removeFirst(count) }
        return Array(events.prefix(count))
    }

    fileprivate mutating func putBack(_ taken: ArraySlice<DelegateEvent>) {
        events.insert(contentsOf: taken, at: 0)
        left -= taken.count
    }
}

extension DelegateEvent {
    fileprivate var isProgress: Bool {
        switch self {
        case .didReadPartial, .didWritePartial: true
        default: false
        }
    }

    /// Adds the progress that `event` tells to this one's; false when they do not tell of the same operation.
    fileprivate mutating func absorb(_ event: DelegateEvent) -> Bool {
        switch (self, event) {
        case (.didReadPartial(let count, let tag), .didReadPartial(let more, let other)) where tag == other:
            self = .didReadPartial(count + more, tag: tag)
        case (.didWritePartial(let count, let tag), .didWritePartial(let more, let other)) where tag == other:
            self = .didWritePartial(count + more, tag: tag)
        default: return false
        }
        return true
    }
}

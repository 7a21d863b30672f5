// Rules of the line:
//  1. Events leave in the order in which they came, whichever block on the queue takes them.
//  2. A block takes no event that came after it was put on the queue: a block that the user has put there in
//     between keeps its place before that event.
//  3. Blocks are put on the queue at once or, from the loop, when it has handled its batch: one for all
//     connections. A queue that is woken for each event takes the processor away from the loop each time.
//  4. Progress of an operation is added to the progress of it that waits already: a slow delegate does not
//     have the peer fill the memory with events.
//  5. When the delegate has moved to another queue, what waits moves there.
//  6. One block has events at a time; what other blocks were to tell meanwhile, on another queue, it tells or
//     passes on.
//  7. While events wait here, none is delivered inline.

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
        /// How many events blocks have been put on a queue for.
        var promised = 0
        /// A block has taken events and has not told all of them.
        var isOut = false
        /// Called when nothing waits here any more.
        var sequel: (@Sendable () -> Void)?
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
        guard let events = state.withLock({ $0.begin(upTo: ticket) }) else { return }
        deliver(events, on: queue)
    }

    /// False while events wait or are being told, which others must not overtake: then `sequel` is called
    /// when that is over.
    func isIdle(orElse sequel: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            let isIdle = state.events.isEmpty && !state.isOut
            state.sequel = isIdle ? nil : sequel
            return isIdle
        }
    }

    /// This block alone has events, until none is left that was promised.
    private func deliver(_ first: [DelegateEvent], on queue: DispatchQueue) {
        var audience = relay.gatherAudience()
        var events = first[...]
        while true {
            while let event = events.first {
                if let other = audience.queueInstead(of: queue) {
                    state.withLock { $0.putBack(events) }
                    return other.async { self.goOn(on: other) }
                }
                events.removeFirst()
                relay.deliver(event, to: &audience)
            }
            guard let more = state.withLock({ $0.next() }) else { break }
            events = more[...]
        }
        finish()
    }

    /// The block has no events any more.
    private func finish() {
        let sequel = state.withLock { $0.events.isEmpty ? $0.sequel.take() : nil }
        sequel?()
    }

    /// On the queue that the delegate has moved to.
    private func goOn(on queue: DispatchQueue) {
        guard let events = state.withLock({ $0.next() }) else { return finish() }
        deliver(events, on: queue)
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

    /// The events up to `ticket`, for a block that has them alone; nil when there are none, or when another
    /// block will tell them.
    fileprivate mutating func begin(upTo ticket: Int) -> [DelegateEvent]? {
        promised = max(promised, ticket)
        guard !isOut else { return nil }
        return next()
    }

    /// What is promised and has not been taken; nil when that is nothing, and the block has no events any
    /// more.
    fileprivate mutating func next() -> [DelegateEvent]? {
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

// Rules of delivery:
//  1. Events reach the delegate in the order in which they happened, one at a time, and no lock is held
//     meanwhile. The socket's `deliver(_:to:)` calls user code; nothing here does.
//  2. Those for a delegate queue wait in an `EventBacklog`.
//  3. Inline (no delegate queue, or the delegate queue is the socket queue): they are delivered inside the
//     turn, on the loop or on the socket queue; never inside a call that the caller makes.
//  4. Once the socket has taken up something else, this source delivers nothing but its end, and the next
//     source nothing before that (`end`).
//  5. A delegate is called on the queue that was set together with it, and nowhere else (`DelegateSlot`).
//  6. While the outlet is held back nothing is delivered: the end of what the socket did before comes first,
//     or the callback that brings an accepted socket.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The events of one source that are not delivered yet, oldest first: what the parts of a source know of its
/// `EventOutlet`, and so nothing of its socket.
///
/// Confined to the turn of its source, or to the loop of a listener.
class EventOutbox<Event: SocketEvent> {
    // In an order that takes little room, here and in the subclass: every connection has one of these.

    /// The thread whose code may have its writes leave together, except for an inline delivery.
    final let collector = WriteCollector()
    /// The queue that events have to be sent to; nil when they are delivered inline.
    @exclusivity(unchecked) fileprivate(set) final var queue: DispatchQueue?
    @exclusivity(unchecked) final var waiting = Ring<Event>()
    /// An inline delivery is under way, inside the turn: the writes of its callbacks may leave together.
    @exclusivity(unchecked) fileprivate(set) final var isInDelivery = false

    /// The code that runs, if its writes may leave together.
    final var collectingCode: WriteCollector.Code? { isInDelivery ? .delivery : collector.code }

    final var isEmpty: Bool { waiting.isEmpty }

    /// Events are delivered inside the turn.
    final var isInline: Bool { queue == nil }

    final func append(_ event: consuming Event) {
        waiting.append(event)
    }
}

/// The events of one source on their way to the delegate of its socket.
///
/// Confined to the turn of its source, or to the loop of a listener. `supersede()` and `end` are for anyone.
/// On a delegate queue its blocks use the backlog, which is set before the first of them, and the socket.
final class EventOutlet<Socket: EventSocket>: EventOutbox<Socket.Event>, @unchecked Sendable {
    // Unchecked: see above. The runtime reads weak references atomically.

    @exclusivity(unchecked) var isHeldBack = false
    /// User code is being called inside the turn.
    @exclusivity(unchecked) private(set) var isDelivering = false
    private let hasSuccessor = Atomic(false)
    @exclusivity(unchecked) private weak var socket: Socket?
    /// Made once, when there is a delegate queue to send the first event to.
    @exclusivity(unchecked) private var backlog: EventBacklog<Socket.Event>?
    /// The source, when it collects what a block of callbacks writes. Used by the thread of the block alone.
    @exclusivity(unchecked) private var collecting: Socket.Source?
    /// Reached when the end is delivered.
    let end = Milestone()

    /// The events of one inline delivery before others on the loop get their turn, or before it looks at the
    /// clock.
    private static var deliveryLimit: Int { 16 }
    /// The time of one inline delivery, in seconds, for sources that look at the clock.
    private static var deliverySeconds: Double { 0.000_5 }

    init(of socket: Socket) {
        self.socket = socket
    }

    // MARK: - One source after the other

    var isSuperseded: Bool { hasSuccessor.load(ordering: .relaxed) }

    /// The socket has taken up something else.
    func supersede() {
        hasSuccessor.store(true, ordering: .relaxed)
    }

    // MARK: - Where to deliver

    /// Delivers on `delegateQueue` from now on.
    func callBack(on delegateQueue: DispatchQueue?, unlessItIs socketQueue: DispatchQueue?) {
        queue = delegateQueue === socketQueue ? nil : delegateQueue
    }

    /// The socket has another delegate queue. The outlet asks the socket for it: of two changes that overtake
    /// each other on the way here, the later one wins.
    func changeQueue() {
        if let socket { callBack(on: socket.delegateQueue, unlessItIs: socket.socketQueue) }
    }

    // MARK: - Delivering

    /// The code that follows is not a callback, even if a callback called it; returns whether one did. Pass
    /// that to `resumeCallback(_:)` afterwards.
    func leaveCallback() -> Bool {
        defer { isDelivering = false }
        return isDelivering
    }

    func resumeCallback(_ wasDelivering: Bool) {
        isDelivering = wasDelivering
    }

    /// Delivers what waits, here and now where possible.
    func deliver(on executor: TurnExecutor, for source: Socket.Source) {
        guard !waiting.isEmpty, !isHeldBack else { return }
        // No message brings a new queue here: the socket sends its changes to the next source.
        if isSuperseded { changeQueue() }
        if queue != nil {
            source.publishProgress()
            send(on: executor == .loop ? source.loop : nil)
        } else if let backlog, !backlog.isIdle(orElse: { [weak source] in source?.askForTurn() }) {
            // The delegate is now inline: what waits for its old queue goes first.
        } else if executor != .caller {
            deliverInline(source)
        } else {
            source.wishForTurn()
        }
    }

    /// For a source without a turn, on its loop: the same, without callbacks that act at once. An inline
    /// delivery goes to the socket queue, if there is one.
    func deliver(onLoop loop: EventLoop) {
        if let socket { queue = socket.delegateQueue ?? socket.socketQueue }
        if queue != nil { return send(on: loop) }
        if let backlog, !backlog.isIdle(orElse: { loop.run { self.deliver(onLoop: loop) } }) { return }
        var recipient = EventRecipient(socket)
        while !waiting.isEmpty {
            let delegate = recipient.findDelegate()
            guard isInline(recipient) else { return send(on: loop) }
            repeat {
                guard let event = waiting.popFirst() else { return }
                deliver(event, to: delegate, of: &recipient)
            } while !recipient.isOutdated
        }
    }

    private func deliverInline(_ source: Socket.Source) {
        var left = Self.deliveryLimit
        var more = DeliveryAllowance(Socket.Event.deliveryLimit - Self.deliveryLimit)
        var recipient = EventRecipient(socket)
        recipient.beginCallbacks(of: source)
        isInDelivery = true
        while left > 0, !waiting.isEmpty {
            // Held for all events: to count references to a weakly referenced object is expensive.
            let delegate = recipient.findDelegate()
            guard isInline(recipient) else { break }
            repeat {
                guard let event = waiting.popFirst() else { break }
                isDelivering = true
                deliver(consume event, to: delegate, of: &recipient)
                isDelivering = false
                left -= 1
                if left == 0, !waiting.isEmpty { left = more.take(Self.deliveryLimit, within: Self.deliverySeconds) }
                // Requests of several callbacks are served together.
                if waiting.isEmpty { source.serveRequests() }
            } while left > 0 && !recipient.isOutdated
        }
        isInDelivery = false
        source.endCallbacks()
        recipient.endCallbacks()
        if !waiting.isEmpty { source.wishForTurn() }
    }

    /// Inside the turn: `source` collects writes. A block of callbacks has it send them in the end.
    @inline(__always)
    func noteCollecting(_ source: Socket.Source) {
        if !isInDelivery, collector.code == .block { collecting = source }
    }

    /// On the thread of a block, whose callbacks are over.
    private func endBlock() {
        collector.close()
        if let source = collecting.take() { source.flush() }
    }

    /// True when events are delivered inside the turn. The delegate may have moved to a queue of its own
    /// since this was last asked.
    private func isInline(_ recipient: borrowing EventRecipient<Socket>) -> Bool {
        if !recipient.isInline, queue == nil { queue = recipient.queue }
        return queue == nil
    }

    /// Calls the delegate, which may be called here.
    private func deliver(
        _ event: consuming Socket.Event, to delegate: Socket.Delegate?, of recipient: inout EventRecipient<Socket>
    ) {
        let isEnd = event.isEnd
        if isEnd, !event.claimEnd() { return }
        if isEnd || !isSuperseded { recipient.deliver(consume event, to: delegate) }
        if isEnd { end.reach() }
    }

    // MARK: - On a delegate queue

    private func send(on loop: EventLoop?) {
        guard let queue else { return }
        // Set once: blocks on the queue read it.
        if backlog == nil { backlog = EventBacklog() }
        guard let backlog else { return }
        guard let ticket = backlog.take(&waiting, isOnLoop: loop != nil) else { return }
        if let loop { return loop.afterBatch(self, on: queue) }
        queue.async { self.deliverBacklog(upTo: ticket, on: queue) }
    }

    /// On the loop, when the batch has been handled.
    fileprivate func takeBacklogTicket() -> Int {
        backlog?.takeTicket() ?? 0
    }

    /// On `queue`: delivers what came before `ticket` was taken.
    fileprivate func deliverBacklog(upTo ticket: Int, on queue: DispatchQueue) {
        guard let backlog, let events = backlog.begin(upTo: ticket) else { return }
        deliver(events, of: backlog, on: queue)
    }

    /// Only this block has events, until it has delivered all that were promised.
    private func deliver(_ first: [Socket.Event], of backlog: EventBacklog<Socket.Event>, on queue: DispatchQueue) {
        var recipient = EventRecipient(socket)
        var delegate = recipient.findDelegate()
        var events = first[...]
        while true {
            while let event = events.first {
                if recipient.isOutdated {
                    // Released first: its deinit may call the socket.
                    delegate = nil
                    delegate = recipient.findDelegate()
                }
                if let other = recipient.queue, other !== queue {
                    endBlock()
                    backlog.putBack(events)
                    return other.async { self.goOn(with: backlog, on: other) }
                }
                events.removeFirst()
                if events.isEmpty { collector.close() } else { collector.open(for: .block) }
                deliver(event, to: delegate, of: &recipient)
            }
            // Before the backlog lets another block in.
            endBlock()
            guard let more = backlog.next() else { break }
            events = more[...]
        }
        backlog.finish()
    }

    /// On the queue that the delegate has moved to.
    private func goOn(with backlog: EventBacklog<Socket.Event>, on queue: DispatchQueue) {
        guard let events = backlog.next() else { return backlog.finish() }
        deliver(events, of: backlog, on: queue)
    }
}

/// The events that an inline delivery may have beyond the first ones, while it takes little time.
private struct DeliveryAllowance {
    private var left: Int
    private var end: Deadline?

    init(_ left: Int) {
        self.left = left
    }

    /// How many of the next `count` events may be delivered now: none when the time is over, which runs from
    /// the first call on.
    mutating func take(_ count: Int, within seconds: Double) -> Int {
        guard left > 0 else { return 0 }
        let now = Deadline.now
        let end = end ?? Deadline(after: seconds, from: now) ?? now
        self.end = end
        guard !end.isAtMost(now) else { return 0 }
        left -= count
        return count
    }
}

/// The recipient of events: the socket, held for one delivery since a weak reference is expensive to follow,
/// and where its delegate is called.
struct EventRecipient<Socket: EventSocket>: ~Copyable {
    private var socket: Socket?
    /// The queue of the delegate; nil: it may be called anywhere.
    private(set) var queue: DispatchQueue?
    /// The delegate may be called on the socket's loop or its socket queue.
    private(set) var isInline = true
    private var changeCount = 0

    fileprivate init(_ socket: Socket?) {
        self.socket = socket
    }

    /// The socket, which is kept here: to count references to a weakly referenced object is expensive.
    private var unretained: Unmanaged<Socket>? { socket.map(Unmanaged.passUnretained) }

    func beginCallbacks(of source: Socket.Source) {
        unretained?._withUnsafeGuaranteedRef { $0.beginCallbacks(of: source) }
    }

    func endCallbacks() {
        unretained?._withUnsafeGuaranteedRef { $0.endCallbacks() }
    }

    /// The delegate has changed since `findDelegate()`.
    var isOutdated: Bool {
        unretained?._withUnsafeGuaranteedRef { $0.delegateChangeCount != changeCount } ?? false
    }

    /// The delegate as it is now, with its queue.
    mutating func findDelegate() -> Socket.Delegate? {
        guard let socket = unretained else { return nil }
        var delegate: Socket.Delegate?
        queue = nil
        socket._withUnsafeGuaranteedRef { socket in
            changeCount = socket.delegateChangeCount
            socket.copyDelegate(to: &delegate, &queue)
            isInline = queue == nil || queue === socket.socketQueue
        }
        return delegate
    }

    fileprivate mutating func deliver(_ event: consuming Socket.Event, to delegate: Socket.Delegate?) {
        // Nothing else refers to the socket any more, so its events are not wanted.
        if isKnownUniquelyReferenced(&socket) { socket = nil }
        guard let socket = unretained else { return }
        // Handed over, not copied: a copy of the data would count references.
        var event: Socket.Event? = consume event
        socket._withUnsafeGuaranteedRef { socket in
            if let event = event.take() { socket.deliver(consume event, to: delegate) }
        }
    }
}

/// A socket that delivers events to its delegate.
protocol EventSocket: AnyObject, Sendable {
    associatedtype Event: SocketEvent
    associatedtype Delegate
    associatedtype Source: EventSource

    /// A queue on which the socket's state is handled, and inline delegates are called.
    var socketQueue: DispatchQueue? { get }
    /// The queue on which the delegate is called; nil: inline.
    var delegateQueue: DispatchQueue? { get }
    /// How many times the delegate has changed.
    var delegateChangeCount: Int { get }
    /// The delegate and its queue, as they are now.
    func copyDelegate(to delegate: inout Delegate?, _ queue: inout DispatchQueue?)
    /// Calls the delegate. This is where user code runs.
    func deliver(_ event: consuming Event, to delegate: Delegate?)
    /// On this thread, until `endCallbacks()`: what the delegate asks for goes to `source` at once.
    func beginCallbacks(of source: Source)
    func endCallbacks()

    // The loop asks this of an outlet, and the default is below. Here, since the conformance of one type
    // of socket knows all types, and a generic one looks them up at run time: twice the cost of an echo.

    static func takeTicket(of outlet: EventOutlet<Self>) -> Int
    static func deliverBacklog(of outlet: EventOutlet<Self>, upTo ticket: Int, on queue: DispatchQueue)
}

extension EventSocket {
    static func takeTicket(of outlet: EventOutlet<Self>) -> Int {
        outlet.takeBacklogTicket()
    }

    static func deliverBacklog(of outlet: EventOutlet<Self>, upTo ticket: Int, on queue: DispatchQueue) {
        outlet.deliverBacklog(upTo: ticket, on: queue)
    }
}

extension EventOutlet: BatchedWork {
    func takeTicket() -> Int {
        Socket.takeTicket(of: self)
    }

    func run(upTo ticket: Int, on queue: DispatchQueue) {
        Socket.deliverBacklog(of: self, upTo: ticket, on: queue)
    }
}

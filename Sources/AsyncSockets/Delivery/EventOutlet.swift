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

/// The events of one source on their way to the delegate of its socket.
///
/// Confined to the turn of its source, or to the loop of a listener. `supersede()` and `end` are for anyone.
/// On a delegate queue its blocks use the backlog, which is set before the first of them, and the socket.
final class EventOutlet<Socket: EventSocket>: @unchecked Sendable {
    // Unchecked: see above. The runtime reads weak references atomically.
    @exclusivity(unchecked) private weak var socket: Socket?
    @exclusivity(unchecked) private var outbox = Ring<Socket.Event>()
    /// The queue that events have to be sent to; nil when they are delivered inline.
    @exclusivity(unchecked) private(set) var queue: DispatchQueue?
    /// Made once, when there is a delegate queue to send the first event to.
    @exclusivity(unchecked) private var backlog: EventBacklog<Socket.Event>?
    @exclusivity(unchecked) var isHeldBack = false
    /// User code is being called inside the turn.
    @exclusivity(unchecked) private(set) var isDelivering = false
    private let hasSuccessor = Atomic(false)
    /// Reached when the end is delivered.
    let end = Milestone()

    /// The most events of one inline delivery before others on the loop get their turn.
    private static var deliveryLimit: Int { 16 }

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

    var isEmpty: Bool { outbox.isEmpty }

    func append(_ event: consuming Socket.Event) {
        outbox.append(event)
    }

    /// What follows is not a callback, even if a callback called it; returns whether one did. Pass that to
    /// `resumeCallback(_:)` afterwards.
    func leaveCallback() -> Bool {
        defer { isDelivering = false }
        return isDelivering
    }

    func resumeCallback(_ wasDelivering: Bool) {
        isDelivering = wasDelivering
    }

    /// Delivers what waits, here and now where possible.
    func deliver(on executor: TurnExecutor, for source: Socket.Source) {
        guard !outbox.isEmpty, !isHeldBack else { return }
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
            source.askForTurn()
        }
    }

    /// For a source without a turn, on its loop: the same, without callbacks that act at once. An inline
    /// delivery goes to the socket queue, if there is one.
    func deliver(onLoop loop: EventLoop) {
        if let socket { queue = socket.delegateQueue ?? socket.socketQueue }
        if queue != nil { return send(on: loop) }
        if let backlog, !backlog.isIdle(orElse: { loop.run { self.deliver(onLoop: loop) } }) { return }
        var recipient = EventRecipient(socket)
        while !outbox.isEmpty {
            let delegate = recipient.findDelegate()
            guard isInline(recipient) else { return send(on: loop) }
            repeat {
                guard let event = outbox.popFirst() else { return }
                deliver(event, to: delegate, of: &recipient)
            } while !recipient.isOutdated
        }
    }

    private func deliverInline(_ source: Socket.Source) {
        var left = Self.deliveryLimit
        var recipient = EventRecipient(socket)
        recipient.beginCallbacks(of: source)
        while left > 0, !outbox.isEmpty {
            // Held for all events: to count references to a weakly referenced object is expensive.
            let delegate = recipient.findDelegate()
            guard isInline(recipient) else { break }
            repeat {
                guard let event = outbox.popFirst() else { break }
                isDelivering = true
                deliver(consume event, to: delegate, of: &recipient)
                isDelivering = false
                left -= 1
                // What is queued in several callbacks is served together.
                if outbox.isEmpty { source.serveRequests() }
            } while left > 0 && !recipient.isOutdated
        }
        recipient.endCallbacks()
        if !outbox.isEmpty { source.askForTurn() }
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
        if isEnd || !isSuperseded { recipient.deliver(consume event, to: delegate) }
        if isEnd { end.reach() }
    }

    // MARK: - On a delegate queue

    private func send(on loop: EventLoop?) {
        guard let queue else { return }
        // Set once: blocks on the queue read it.
        if backlog == nil { backlog = EventBacklog() }
        guard let backlog else { return }
        guard let ticket = backlog.take(&outbox, isOnLoop: loop != nil) else { return }
        if let loop { return loop.afterBatch(Socket.batchedWork(of: self), on: queue) }
        queue.async { self.deliverBacklog(upTo: ticket, on: queue) }
    }

    /// On the loop, when the batch has been handled.
    func takeBacklogTicket() -> Int {
        backlog?.takeTicket() ?? 0
    }

    /// On `queue`: delivers what came before `ticket` was taken.
    func deliverBacklog(upTo ticket: Int, on queue: DispatchQueue) {
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
                    backlog.putBack(events)
                    return other.async { self.goOn(with: backlog, on: other) }
                }
                events.removeFirst()
                deliver(event, to: delegate, of: &recipient)
            }
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
        // No one else has the socket any more, so no one wants its events.
        if isKnownUniquelyReferenced(&socket) { socket = nil }
        guard let socket = unretained else { return }
        // Handed over, not copied: a copy of the data would count references.
        var event: Socket.Event? = consume event
        socket._withUnsafeGuaranteedRef { socket in
            if let event = event.take() { socket.deliver(consume event, to: delegate) }
        }
    }
}

// Rules for delivery:
//  1. Events are delivered in the order in which they happened, one at a time, without holding a lock. The
//     socket's `deliver(_:to:)` calls user code; no code in this file does.
//  2. Events for a delegate queue are stored in an `EventBacklog`.
//  3. Inline events (there is no delegate queue, or it is the socket queue) are delivered inside the turn, on
//     the loop or on the socket queue, but never inside a call made by the user.
//  4. Once the socket is used for something else, this source delivers only its end event, and the next
//     source delivers no events before that event (`end`).
//  5. A delegate is called only on the queue that was set together with the delegate (`DelegateSlot`).
//  6. While the outlet is held back, no events are delivered. It is held back until the end event of the
//     socket's previous use has been delivered or, for an accepted socket, until the callback that passes the
//     socket to the delegate has returned.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The undelivered events of one source, oldest first. The parts of a source use this class instead of
/// `EventOutlet`, so that they do not depend on the socket.
///
/// Confined to the turn of its source, or to the loop of a listener.
class EventOutbox<Event: SocketEvent> {
    // Ordered to minimize the size, here and in the subclass: every connection has an instance.

    /// The thread that is running code with writes that may be coalesced, except for inline deliveries.
    final let collector = WriteCollector()
    /// The queue on which events must be delivered, or `nil` for inline delivery.
    @exclusivity(unchecked) fileprivate(set) final var queue: DispatchQueue?
    @exclusivity(unchecked) final var waiting = Ring<Event>()
    /// Whether an inline delivery is running inside the turn, so that writes from its callbacks may be
    /// coalesced.
    @exclusivity(unchecked) fileprivate(set) final var isInDelivery = false

    /// The running code, if its writes may be coalesced.
    final var collectingCode: WriteCollector.Code? { isInDelivery ? .delivery : collector.code }

    final var isEmpty: Bool { waiting.isEmpty }

    final var isInline: Bool { queue == nil }

    final func append(_ event: consuming Event) {
        waiting.append(event)
    }
}

/// Delivers the events of one source to the delegate of its socket.
///
/// Confined to the turn of its source, or to the loop of a listener. Only `supersede()` and `end` may be used
/// from any thread. Blocks on a delegate queue use the socket and the backlog, which is set before the first
/// block is enqueued.
final class EventOutlet<Socket: EventSocket>: EventOutbox<Socket.Event>, @unchecked Sendable {
    // Unchecked: see above. The runtime reads weak references atomically.

    @exclusivity(unchecked) var isHeldBack = false
    @exclusivity(unchecked) private(set) var isDelivering = false
    private let hasSuccessor = Atomic(false)
    @exclusivity(unchecked) private weak var socket: Socket?
    /// Created once, when the first event is sent to a delegate queue.
    @exclusivity(unchecked) private var backlog: EventBacklog<Socket.Event>?
    /// The source that is collecting the writes of a block of callbacks. Used only by the block's thread.
    @exclusivity(unchecked) private var collecting: Socket.Source?
    /// Reached when the end event has been delivered.
    let end = Milestone()

    /// The number of events an inline delivery may deliver before it must yield to other work on the loop or
    /// check the time.
    private static var deliveryLimit: Int { 16 }
    /// The maximum duration of an inline delivery in seconds, for sources that check the time.
    private static var deliverySeconds: Double { 0.000_5 }

    init(of socket: Socket) {
        self.socket = socket
    }

    // MARK: - Successive uses of a socket

    var isSuperseded: Bool { hasSuccessor.load(ordering: .relaxed) }

    /// Notes that the socket is now used for something else.
    func supersede() {
        hasSuccessor.store(true, ordering: .relaxed)
    }

    // MARK: - Delivery queue

    func callBack(on delegateQueue: DispatchQueue?, unlessItIs socketQueue: DispatchQueue?) {
        queue = delegateQueue === socketQueue ? nil : delegateQueue
    }

    /// Called when the socket's delegate queue has changed. Reads the queue from the socket, so that the
    /// latest change wins even if two notifications arrive out of order.
    func changeQueue() {
        if let socket { callBack(on: socket.delegateQueue, unlessItIs: socket.socketQueue) }
    }

    // MARK: - Delivering

    /// Marks the code that follows as not part of a callback, even if a callback called it. Returns whether a
    /// callback was running; pass the result to `resumeCallback(_:)` afterwards.
    func leaveCallback() -> Bool {
        defer { isDelivering = false }
        return isDelivering
    }

    func resumeCallback(_ wasDelivering: Bool) {
        isDelivering = wasDelivering
    }

    /// Delivers the pending events, immediately if possible.
    func deliver(on executor: TurnExecutor, for source: Socket.Source) {
        guard !waiting.isEmpty, !isHeldBack else { return }
        // A superseded source is no longer notified when the queue changes, because the socket notifies only
        // the next source.
        if isSuperseded { changeQueue() }
        if queue != nil {
            source.publishProgress()
            send(on: executor == .loop ? source.loop : nil)
        } else if let backlog, !backlog.isIdle(orElse: { [weak source] in source?.askForTurn() }) {
            // The delegate is now inline, but events for its old queue must be delivered first.
        } else if executor != .caller {
            deliverInline(source)
        } else {
            source.wishForTurn()
        }
    }

    /// Delivers the pending events of a source without a turn, on its loop. Requests from callbacks are not
    /// served immediately. If there is a socket queue, inline events are delivered on that queue.
    func deliver(onLoop loop: SocketEventLoop) {
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
            // Held across events, because reference counting a weakly referenced object is expensive.
            let delegate = recipient.findDelegate()
            guard isInline(recipient) else { break }
            repeat {
                guard let event = waiting.popFirst() else { break }
                isDelivering = true
                deliver(consume event, to: delegate, of: &recipient)
                isDelivering = false
                left -= 1
                if left == 0, !waiting.isEmpty { left = more.take(Self.deliveryLimit, within: Self.deliverySeconds) }
                // The requests of several callbacks are served together.
                if waiting.isEmpty { source.serveRequests() }
            } while left > 0 && !recipient.isOutdated
        }
        isInDelivery = false
        source.endCallbacks()
        recipient.endCallbacks()
        if !waiting.isEmpty { source.wishForTurn() }
    }

    /// Inside the turn: notes that `source` is collecting writes. If a block of callbacks is running, the
    /// block flushes them when it finishes.
    @inline(__always)
    func noteCollecting(_ source: Socket.Source) {
        if !isInDelivery, collector.code == .block { collecting = source }
    }

    /// Called on the thread of a block after its last callback.
    private func endBlock() {
        collector.close()
        if let source = collecting.take() { source.flush() }
    }

    /// Whether events are delivered inside the turn. The delegate may have moved to its own queue since the
    /// last check.
    private func isInline(_ recipient: borrowing EventRecipient<Socket>) -> Bool {
        if !recipient.isInline, queue == nil { queue = recipient.queue }
        return queue == nil
    }

    /// Calls the delegate. The caller ensures that the delegate may be called here.
    private func deliver(
        _ event: consuming Socket.Event, to delegate: Socket.Delegate?, of recipient: inout EventRecipient<Socket>
    ) {
        let isEnd = event.isEnd
        if isEnd, !event.claimEnd() { return }
        if isEnd || !isSuperseded { recipient.deliver(consume event, to: delegate) }
        if isEnd { end.reach() }
    }

    // MARK: - On a delegate queue

    private func send(on loop: SocketEventLoop?) {
        guard let queue else { return }
        // Set only once, because blocks on the queue read it.
        if backlog == nil { backlog = EventBacklog() }
        guard let backlog else { return }
        guard let ticket = backlog.take(&waiting, isOnLoop: loop != nil) else { return }
        if let loop { return loop.afterBatch(self, on: queue) }
        queue.async { self.deliverBacklog(upTo: ticket, on: queue) }
    }

    /// Called on the loop when the batch has been handled.
    fileprivate func takeBacklogTicket() -> Int {
        backlog?.takeTicket() ?? 0
    }

    /// Called on `queue`. Delivers the events that arrived before `ticket` was taken.
    fileprivate func deliverBacklog(upTo ticket: Int, on queue: DispatchQueue) {
        guard let backlog, let events = backlog.begin(upTo: ticket) else { return }
        deliver(events, of: backlog, on: queue)
    }

    /// Only this block may take events until all promised events have been delivered.
    private func deliver(_ first: [Socket.Event], of backlog: EventBacklog<Socket.Event>, on queue: DispatchQueue) {
        var recipient = EventRecipient(socket)
        var delegate = recipient.findDelegate()
        var events = first[...]
        while true {
            while let event = events.first {
                if recipient.isOutdated {
                    // Release the delegate first, because its deinit may call the socket.
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
            // Done before another block can take events from the backlog.
            endBlock()
            guard let more = backlog.next() else { break }
            events = more[...]
        }
        backlog.finish()
    }

    /// Continues on the queue that the delegate has moved to.
    private func goOn(with backlog: EventBacklog<Socket.Event>, on queue: DispatchQueue) {
        guard let events = backlog.next() else { return backlog.finish() }
        deliver(events, of: backlog, on: queue)
    }
}

/// The number of events an inline delivery may deliver after its first batch, if little time has passed.
private struct DeliveryAllowance {
    private var left: Int
    private var end: Deadline?

    init(_ left: Int) {
        self.left = left
    }

    /// Returns how many of the next `count` events may be delivered now. Returns 0 once the time, measured
    /// from the first call, has run out.
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

/// The recipient of events: the socket, and where its delegate is called. The socket is retained for the
/// whole delivery, because loading a weak reference is expensive.
struct EventRecipient<Socket: EventSocket>: ~Copyable {
    private var socket: Socket?
    /// The delegate's queue, or `nil` if the delegate may be called anywhere.
    private(set) var queue: DispatchQueue?
    /// Whether the delegate may be called on the socket's loop or its socket queue.
    private(set) var isInline = true
    private var changeCount = 0

    fileprivate init(_ socket: Socket?) {
        self.socket = socket
    }

    /// The socket without a retain: this struct keeps it alive, and reference counting a weakly referenced
    /// object is expensive.
    private var unretained: Unmanaged<Socket>? { socket.map(Unmanaged.passUnretained) }

    func beginCallbacks(of source: Socket.Source) {
        unretained?._withUnsafeGuaranteedRef { $0.beginCallbacks(of: source) }
    }

    func endCallbacks() {
        unretained?._withUnsafeGuaranteedRef { $0.endCallbacks() }
    }

    /// Whether the delegate has changed since `findDelegate()`.
    var isOutdated: Bool {
        unretained?._withUnsafeGuaranteedRef { $0.delegateChangeCount != changeCount } ?? false
    }

    /// Returns the current delegate and stores its queue.
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
        // If this is the last reference to the socket, its events are no longer wanted.
        if isKnownUniquelyReferenced(&socket) { socket = nil }
        guard let socket = unretained else { return }
        // Moved, because a copy would retain and release the event's data.
        var event: Socket.Event? = consume event
        socket._withUnsafeGuaranteedRef { socket in
            if let event = event.take() { socket.deliver(consume event, to: delegate) }
        }
    }
}

protocol EventSocket: AnyObject, Sendable {
    associatedtype Event: SocketEvent
    associatedtype Delegate
    associatedtype Source: EventSource

    /// The queue on which the socket's state is handled and inline delegates are called.
    var socketQueue: DispatchQueue? { get }
    /// The queue on which the delegate is called, or `nil` for inline delivery.
    var delegateQueue: DispatchQueue? { get }
    var delegateChangeCount: Int { get }
    func copyDelegate(to delegate: inout Delegate?, _ queue: inout DispatchQueue?)
    /// Calls the delegate. User code runs here.
    func deliver(_ event: consuming Event, to delegate: Delegate?)
    /// Until `endCallbacks()`, the delegate's requests on this thread are passed directly to `source`.
    func beginCallbacks(of source: Source)
    func endCallbacks()

    // Requirements with the default implementations below, called by the loop through the outlet. They are
    // part of this protocol because the conformance of a concrete socket has statically known types. Generic
    // code would look up the types at run time, which doubles the cost of an echo.

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

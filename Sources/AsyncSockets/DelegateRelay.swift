// Rules of the relay:
//  1. Events reach the delegate in the order in which they happened, one at a time.
//  2. Events of one turn go to the delegate queue as one block.
//  3. Inline (no delegate queue, or the delegate queue is the socket queue): they wait in `backlog` until the turn has been left, and are delivered by the loop
//     (or on the socket queue), never inside a call that the user makes. A delivery that is under way takes what comes meanwhile.
//  4. Once the socket has taken up a new connection, nothing but the end is told of this one. The new one waits for that (`whenEndIsTold`).
//  5. No lock is held and no turn is taken while the delegate runs.

internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// Brings the events of one connection to the delegate of its socket.
final class DelegateRelay: Sendable {
    /// Where inline deliveries run.
    enum InlinePlace {
        case loop
        case socketQueue(DispatchQueue)
    }

    private let socket: WeakSocket
    private let delegate: DelegateSlot
    private let place: InlinePlace
    private let state = Locked(State())
    private let isSuperseded = Atomic(false)

    fileprivate struct State {
        var backlog: [DelegateEvent] = []
        /// An empty array with room, to be the next backlog.
        var spare: [DelegateEvent] = []
        var isDelivering = false
        var isEndTold = false
        var sequel: (@Sendable () -> Void)?
    }

    /// What an inline delivery came to.
    enum Delivery {
        case delivered
        /// The limit was reached.
        case moreIsWaiting
        /// Nothing will follow.
        case endIsTold
    }

    /// The most events that one inline delivery brings before others on the loop have their turn.
    private static let deliveryLimit = 16

    init(to socket: AsyncSocket) {
        self.socket = WeakSocket(socket)
        delegate = socket.delegateSlot
        place = socket.socketQueue.map { .socketQueue($0) } ?? .loop
    }

    /// Inside the turn: sends the events of that turn on their way, and leaves the array empty. True when the loop has to be asked for an inline delivery.
    func send(_ events: inout [DelegateEvent]) -> Bool {
        if let queue = delegate.queue, !isInline(queue) {
            queue.async { [self, events] in
                for event in events { deliver(event, to: socket.value) }
            }
            events = []
            return false
        }
        return state.withLock { state in
            if state.backlog.isEmpty { swap(&state.backlog, &events) } else { state.backlog.append(contentsOf: events) }
            events.removeAll(keepingCapacity: true)
            return !state.isDelivering
        }
    }

    private func isInline(_ delegateQueue: DispatchQueue) -> Bool {
        switch place {
        case .loop: false
        case .socketQueue(let queue): queue === delegateQueue
        }
    }

    /// True when inline deliveries run on the caller's own queue rather than on the loop.
    var deliversOnSocketQueue: Bool {
        switch place {
        case .loop: false
        case .socketQueue: true
        }
    }

    /// True when nothing waits to be delivered inline.
    var isIdle: Bool {
        state.withLock { $0.backlog.isEmpty && !$0.isDelivering }
    }

    /// On the loop, before a turn: what the turn sends will be delivered by the `deliverBacklog()` that follows.
    func announceDelivery() {
        state.withLock { $0.isDelivering = true }
    }

    /// On the loop or the socket queue, outside the turn: delivers what waits, and what comes while it does so.
    func deliverBacklog() -> Delivery {
        var events: [DelegateEvent] = []
        var delivered = 0
        while true {
            let end = state.withLock { $0.takeBacklog(into: &events, mayGoOn: delivered < Self.deliveryLimit) }
            if let end { return end }
            let socket = socket.value
            for event in events { deliver(event, to: socket) }
            delivered += events.count
            events.removeAll(keepingCapacity: true)
        }
    }

    private func deliver(_ event: DelegateEvent, to socket: AsyncSocket?) {
        // The end is told from here on: the delegate may connect again within the call.
        if case .didDisconnect = event { noteEnd() } else if isSuperseded.load(ordering: .relaxed) { return }
        guard let socket else { return }
        event.deliver(to: delegate.delegate, from: socket)
    }

    // MARK: - One connection after the other

    /// The socket has taken up a new connection.
    func supersede() {
        isSuperseded.store(true, ordering: .relaxed)
    }

    /// Calls `sequel` when the delegate is about to be told of the end, or at once when it has been.
    func whenEndIsTold(_ sequel: @escaping @Sendable () -> Void) {
        let isEndTold = state.withLock { state in
            if !state.isEndTold { state.sequel = sequel }
            return state.isEndTold
        }
        if isEndTold { sequel() }
    }

    private func noteEnd() {
        let sequel = state.withLock { state in
            state.isEndTold = true
            defer { state.sequel = nil }
            return state.sequel
        }
        sequel?()
    }
}

extension DelegateRelay.State {
    /// Exchanges the backlog for the empty array that the last one has become; nil: there is one to deliver.
    fileprivate mutating func takeBacklog(into events: inout [DelegateEvent], mayGoOn: Bool) -> DelegateRelay.Delivery? {
        swap(&spare, &events)
        if backlog.isEmpty || !mayGoOn {
            isDelivering = false
            return backlog.isEmpty ? (isEndTold ? .endIsTold : .delivered) : .moreIsWaiting
        }
        isDelivering = true
        swap(&backlog, &events)
        swap(&backlog, &spare)
        return nil
    }
}

/// A socket that may be gone.
private final class WeakSocket: @unchecked Sendable {
    // Unchecked: set once; the runtime reads weak references atomically.
    private weak var reference: AsyncSocket?

    init(_ socket: AsyncSocket) {
        reference = socket
    }

    var value: AsyncSocket? { reference }
}

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
    private let place: InlinePlace
    private let state = Locked(State())
    private let isSuperseded = Atomic(false)

    private struct State {
        var backlog: [DelegateEvent] = []
        var isDelivering = false
        var isEndTold = false
        var sequel: (@Sendable () -> Void)?
    }

    /// The most events that one inline delivery brings before others on the loop have their turn.
    private static let deliveryLimit = 16

    init(to socket: AsyncSocket, socketQueue: DispatchQueue?) {
        self.socket = WeakSocket(socket)
        place = socketQueue.map { .socketQueue($0) } ?? .loop
    }

    /// Inside the turn: sends the events of that turn on their way. True when the loop has to be asked for an inline delivery.
    func send(_ events: [DelegateEvent]) -> Bool {
        guard !events.isEmpty else { return false }
        if let queue = socket.value?.delegateQueue, !isInline(queue) {
            queue.async { [self] in
                for event in events { deliver(event) }
            }
            return false
        }
        return state.withLock { state in
            state.backlog.append(contentsOf: events)
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
    ///
    /// - Returns: true when the limit was reached and more is waiting.
    func deliverBacklog() -> Bool {
        var delivered = 0
        while delivered < Self.deliveryLimit, let events = takeBacklog() {
            for event in events { deliver(event) }
            delivered += events.count
        }
        return state.withLock { state in
            state.isDelivering = false
            return !state.backlog.isEmpty
        }
    }

    private func takeBacklog() -> [DelegateEvent]? {
        state.withLock { state in
            guard !state.backlog.isEmpty else { return nil }
            state.isDelivering = true
            defer { state.backlog = [] }
            return state.backlog
        }
    }

    private func deliver(_ event: DelegateEvent) {
        // The end is told from here on: the delegate may connect again within the call.
        if case .didDisconnect = event { noteEnd() } else if isSuperseded.load(ordering: .relaxed) { return }
        guard let socket = socket.value else { return }
        event.deliver(to: socket.delegate, from: socket)
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

/// A socket that may be gone.
private final class WeakSocket: @unchecked Sendable {
    // Unchecked: set once; the runtime reads weak references atomically.
    private weak var reference: AsyncSocket?

    init(_ socket: AsyncSocket) {
        reference = socket
    }

    var value: AsyncSocket? { reference }
}

// Rules of the relay:
//  1. Events reach the delegate in the order in which they happened, one at a time.
//  2. Those for a delegate queue wait in a `DelegateLine`.
//  3. Inline (no delegate queue, or the delegate queue is the socket queue): the connection delivers them
//     itself, inside its turn, on its loop or on the socket queue; never inside a call that the user makes.
//  4. Once the socket has taken up something else, nothing but the end is told of this connection, and
//     nothing of the other before that (`end`).
//  5. A delegate is called on the queue that was set together with it, and nowhere else (`DelegateSlot`).
//  6. No lock is held while the delegate runs.

internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// Brings the events of one connection to the delegate of its socket.
final class DelegateRelay: Sendable {
    /// It may be gone. Set once; the runtime reads weak references atomically.
    nonisolated(unsafe) private weak var socket: AsyncSocket?
    /// The queue that events have to be sent to; nil when they are delivered inline. Set before anybody else
    /// knows the connection, and then inside its turn.
    nonisolated(unsafe) private(set) var queue: DispatchQueue?
    private let hasSuccessor = Atomic(false)
    /// Reached when the delegate has been told of the end.
    let end = Milestone()

    init(to socket: AsyncSocket) {
        self.socket = socket
    }

    /// What is told from now on is told on `delegateQueue`.
    func callBack(on delegateQueue: DispatchQueue?, unlessItIs socketQueue: DispatchQueue?) {
        queue = delegateQueue === socketQueue ? nil : delegateQueue
    }

    /// The socket has another delegate queue. It is asked for it: of two changes that overtake each other on
    /// the way here the later one stays.
    func changeQueue() {
        if let socket { callBack(on: socket.delegateQueue, unlessItIs: socket.socketQueue) }
    }

    /// Whom events are told of now. Held for a delivery, since a weak reference is dear to follow.
    struct Audience: ~Copyable {
        fileprivate var socket: AsyncSocket?
        fileprivate var delegate: (any AsyncSocketDelegate)?
        fileprivate var queue: DispatchQueue?
        /// The delegate may be called on the socket's loop or its socket queue.
        fileprivate var isInline = true
        private var changeCount = 0

        fileprivate init(of socket: AsyncSocket?) {
            self.socket = socket
        }

        /// What follows is told inside the turn of `connection`.
        func beginCallbacks(of connection: StreamConnection) {
            unretained?._withUnsafeGuaranteedRef { $0.callback.open(for: connection) }
        }

        func endCallbacks() {
            unretained?._withUnsafeGuaranteedRef { $0.callback.close() }
        }

        /// The queue on which the delegate has to be called instead, when it may not be called on `place`.
        mutating func queueInstead(of place: DispatchQueue?) -> DispatchQueue? {
            if isOutdated { findDelegate() }
            return queue === place ? nil : queue
        }

        /// The delegate was changed since it was looked for.
        fileprivate var isOutdated: Bool {
            unretained?._withUnsafeGuaranteedRef { $0.delegateChanges.load(ordering: .acquiring) != changeCount } ?? false
        }

        fileprivate mutating func findDelegate() {
            guard let socket = unretained else { return }
            changeCount = socket._withUnsafeGuaranteedRef { $0.delegateChanges.load(ordering: .acquiring) }
            // Not under the lock: the last reference to the old one may be here, and its deinit may call the
            // socket.
            delegate = nil
            queue = nil
            // Where they lie: each copy of the delegate would be counted, and a weakly referenced object's
            // count is expensive.
            socket._withUnsafeGuaranteedRef { socket in
                socket.state.withLock { $0.audience.copy(to: &delegate, &queue) }
                isInline = queue == nil || queue === socket.socketQueue
            }
        }

        /// The socket, which is kept here: to count references to what is referenced weakly too is dear.
        fileprivate var unretained: Unmanaged<AsyncSocket>? { socket.map(Unmanaged.passUnretained) }
    }

    /// Whom to tell, as long as no one changes the delegate.
    func gatherAudience() -> Audience {
        var audience = Audience(of: socket)
        audience.findDelegate()
        return audience
    }

    /// Inside the turn: true when events are delivered there. The delegate may have moved to a queue of its
    /// own since this was last asked.
    func isInline(_ audience: inout Audience) -> Bool {
        if audience.isOutdated { audience.findDelegate() }
        if !audience.isInline, queue == nil { queue = audience.queue }
        return queue == nil
    }

    /// Calls the delegate, which may be called here.
    func deliver(_ event: DelegateEvent, to audience: inout Audience) {
        // No one else has it any more, so no one wants to hear of it.
        if isKnownUniquelyReferenced(&audience.socket) { audience.socket = nil }
        let isEnd = if case .didDisconnect = event { true } else { false }
        if !isEnd, isSuperseded { return }
        audience.unretained?._withUnsafeGuaranteedRef { event.deliver(to: audience.delegate, from: $0) }
        if isEnd { end.reach() }
    }

    // MARK: - One connection after the other

    var isSuperseded: Bool { hasSuccessor.load(ordering: .relaxed) }

    /// The socket has taken up something else.
    func supersede() {
        hasSuccessor.store(true, ordering: .relaxed)
    }
}

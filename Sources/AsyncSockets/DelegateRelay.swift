// Rules of the relay:
//  1. Events reach the delegate in the order in which they happened, one at a time.
//  2. Those for a delegate queue wait in a `DelegateLine`.
//  3. Inline (no delegate queue, or the delegate queue is the socket queue): the connection delivers them itself, inside its turn, on its loop or on the
//     socket queue; never inside a call that the user makes.
//  4. Once the socket has taken up something else, nothing but the end is told of this connection, and nothing of the other before that (`end`).
//  5. A delegate is called on the queue that was set together with it, and nowhere else (`DelegateSlot.Reference.mayBeCalled`).
//  6. No lock is held while the delegate runs.

internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// Brings the events of one connection to the delegate of its socket.
final class DelegateRelay: Sendable {
    /// It may be gone. Set once; the runtime reads weak references atomically.
    nonisolated(unsafe) private weak var socket: AsyncSocket?
    /// The queue that events have to be sent to; nil when they are delivered inline. Set before anybody else knows the connection, and then inside its turn.
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

    /// The socket has another delegate queue. It is asked for it: of two changes that overtake each other on the way here the later one stays.
    func changeQueue() {
        if let socket { callBack(on: socket.delegateQueue, unlessItIs: socket.socketQueue) }
    }

    /// Whom events are told of now. Held for a delivery, since a weak reference is dear to follow.
    struct Audience: ~Copyable {
        fileprivate var socket: AsyncSocket?
        fileprivate var delegate: DelegateSlot.Reference?
        fileprivate var changeCount = 0

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
            guard let delegate, !delegate.mayBeCalled(on: place) else { return nil }
            return delegate.queue
        }

        private var isOutdated: Bool {
            unretained?._withUnsafeGuaranteedRef { $0.delegateChanges.load(ordering: .acquiring) != changeCount } ?? false
        }

        fileprivate mutating func findDelegate() {
            guard let socket = unretained else { return }
            changeCount = socket._withUnsafeGuaranteedRef { $0.delegateChanges.load(ordering: .acquiring) }
            delegate = socket._withUnsafeGuaranteedRef { $0.audience }
        }

        /// The socket, which is kept here: to count references to what is referenced weakly too is dear.
        fileprivate var unretained: Unmanaged<AsyncSocket>? { socket.map(Unmanaged.passUnretained) }
    }

    /// Whom to tell, as long as nobody changes the delegate.
    func gatherAudience() -> Audience {
        var audience = Audience(socket: socket)
        audience.findDelegate()
        return audience
    }

    /// Inside the turn: true while events are delivered there. The delegate may have been changed meanwhile.
    func isInline(_ audience: inout Audience, on socketQueue: DispatchQueue?) -> Bool {
        if queue == nil { queue = audience.queueInstead(of: socketQueue) }
        return queue == nil
    }

    /// Calls the delegate, which may be called here.
    func deliver(_ event: DelegateEvent, to audience: inout Audience) {
        // Nobody else has it any more, so nobody wants to hear of it.
        if isKnownUniquelyReferenced(&audience.socket) { audience.socket = nil }
        let isEnd = if case .didDisconnect = event { true } else { false }
        if !isEnd, isSuperseded { return }
        audience.unretained?._withUnsafeGuaranteedRef { event.deliver(to: audience.delegate?.delegate, from: $0) }
        if isEnd { end.reach() }
    }

    // MARK: - One connection after the other

    var isSuperseded: Bool { hasSuccessor.load(ordering: .relaxed) }

    /// The socket has taken up something else.
    func supersede() {
        hasSuccessor.store(true, ordering: .relaxed)
    }
}

// Rules of the relay:
//  1. Events reach the delegate in the order in which they happened, one at a time.
//  2. Those for a delegate queue wait in a `DelegateLine`.
//  3. Inline (no delegate queue, or the delegate queue is the socket queue): the connection delivers them itself, inside its turn, on its loop or on the
//     socket queue; never inside a call that the user makes.
//  4. Once the socket has taken up a new connection, nothing but the end is told of this one. The new one waits for that (`whenEndIsTold`).
//  5. No lock is held while the delegate runs.

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
    private let ending = Atomic(Ending.untold)
    /// Belongs to whoever sets it until `ending` says that it waits, and then to whoever tells the end.
    nonisolated(unsafe) private var sequel: (@Sendable () -> Void)?

    private enum Ending {
        static let untold: UInt8 = 0
        /// Untold, and `sequel` waits for it.
        static let awaited: UInt8 = 1
        static let told: UInt8 = 2
    }

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
        fileprivate var delegate: (any AsyncSocketDelegate)?
        fileprivate var changeCount = 0

        /// What follows is told inside the turn of `connection`.
        func beginCallbacks(of connection: StreamConnection) {
            unretained?._withUnsafeGuaranteedRef { $0.callback.open(for: connection) }
        }

        func endCallbacks() {
            unretained?._withUnsafeGuaranteedRef { $0.callback.close() }
        }

        fileprivate var isOutdated: Bool {
            unretained?._withUnsafeGuaranteedRef { $0.delegateChanges.load(ordering: .acquiring) != changeCount } ?? false
        }

        fileprivate mutating func findDelegate() {
            guard let socket = unretained else { return }
            changeCount = socket._withUnsafeGuaranteedRef { $0.delegateChanges.load(ordering: .acquiring) }
            delegate = socket._withUnsafeGuaranteedRef { $0.delegate }
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

    /// Calls the delegate.
    func deliver(_ event: DelegateEvent, to audience: inout Audience) {
        if audience.isOutdated { audience.findDelegate() }
        // Nobody else has it any more, so nobody wants to hear of it.
        if isKnownUniquelyReferenced(&audience.socket) { audience.socket = nil }
        // The end is told from here on: the delegate may connect again within the call.
        if case .didDisconnect = event { noteEnd() } else if isSuperseded { return }
        audience.unretained?._withUnsafeGuaranteedRef { event.deliver(to: audience.delegate, from: $0) }
    }

    // MARK: - One connection after the other

    var isSuperseded: Bool { hasSuccessor.load(ordering: .relaxed) }

    /// The socket has taken up a new connection.
    func supersede() {
        hasSuccessor.store(true, ordering: .relaxed)
    }

    /// Calls `sequel` when the delegate is about to be told of the end, or at once when it has been. Call it once.
    func whenEndIsTold(_ sequel: @escaping @Sendable () -> Void) {
        self.sequel = sequel
        let change = ending.compareExchange(expected: Ending.untold, desired: Ending.awaited, ordering: .acquiringAndReleasing)
        if !change.exchanged { callSequel() }
    }

    private func noteEnd() {
        if ending.exchange(Ending.told, ordering: .acquiringAndReleasing) == Ending.awaited { callSequel() }
    }

    private func callSequel() {
        let sequel = sequel
        self.sequel = nil
        sequel?()
    }
}

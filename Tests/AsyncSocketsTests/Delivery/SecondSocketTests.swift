import Dispatch
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

private protocol DatagramDelegate: AnyObject {
    func socket(_ socket: DatagramSocket, didReceive number: Int)
    func socketDidClose(_ socket: DatagramSocket)
}

private enum DatagramEvent: SocketEvent, Equatable {
    case received(Int)
    case closed

    var isEnd: Bool { self == .closed }
    var isProgress: Bool { false }

    mutating func absorb(_ next: DatagramEvent) -> Bool { false }
}

/// A socket of another kind, with its own delegate, event and source types.
private final class DatagramSocket: EventSocket {
    struct WeakReference: WeakDelegate {
        private(set) weak var delegate: (any DatagramDelegate)?

        init(_ delegate: (any DatagramDelegate)?) { self.delegate = delegate }
    }

    let socketQueue: DispatchQueue? = nil
    private let audience: Locked<DelegateSlot<WeakReference>>
    private let callback = CurrentCallback<DatagramSource>()

    init(_ delegate: any DatagramDelegate, queue: DispatchQueue?) {
        audience = Locked(DelegateSlot(delegate, queue: queue))
    }

    var delegateQueue: DispatchQueue? { audience.withLock { $0.queue } }
    var delegateChangeCount: Int { 0 }

    func copyDelegate(to delegate: inout (any DatagramDelegate)?, _ queue: inout DispatchQueue?) {
        audience.withLock { $0.copy(to: &delegate, &queue) }
    }

    func deliver(_ event: consuming DatagramEvent, to delegate: (any DatagramDelegate)?) {
        switch event {
        case .received(let number): delegate?.socket(self, didReceive: number)
        case .closed: delegate?.socketDidClose(self)
        }
    }

    func beginCallbacks(of source: DatagramSource) { callback.open(for: source) }
    func endCallbacks() { callback.close() }

    /// Runs `body` as a call within a callback, if it finds a source.
    func withSource(_ body: (DatagramSource) -> Void) -> Bool { callback.withConnection(body) }
}

/// Its source, with a turn like every source.
private final class DatagramSource: EventHandler, EventSource, TurnOwner, @unchecked Sendable {
    // Unchecked: `registration` is set before the first message, `wantsTurn` is confined to the turn, and
    // everything else is thread-safe.
    let loop: SocketEventLoop
    let outlet: EventOutlet<DatagramSocket>
    let turn = SocketTurn<DatagramEvent>(queue: nil)
    private let arrivals = Locked<[DatagramEvent]>([])
    private var registration: LoopRegistration?
    private var wantsTurn = false

    init(of socket: DatagramSocket, on loop: SocketEventLoop) {
        self.loop = loop
        outlet = EventOutlet(of: socket)
        outlet.changeQueue()
        registration = loop.register(self)
    }

    /// Delivers events from the loop.
    func bring(_ events: [DatagramEvent]) {
        arrivals.withLock { $0 += events }
        askForTurn()
    }

    func handle(_ events: LoopEvents) {
        for event in arrivals.withLock({ $0.split() }) { turn.post(event, to: self, from: .loop) }
    }

    func receive(_ message: DatagramEvent) { outlet.append(message) }
    func finishTurn(on executor: TurnExecutor) -> Bool {
        outlet.deliver(on: executor, for: self)
        defer { wantsTurn = false }
        return wantsTurn
    }

    func wishForTurn() { wantsTurn = true }
    var isCallingUser: Bool { outlet.isDelivering }
    var isCurrent: Bool { true }
    func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }
    func leaveRestToLoop() { askForTurn() }
    func serveRequests() {}
    func publishProgress() {}
    func askForTurn() { if let registration { loop.resume(registration) } }
    func end() { if let registration { loop.deregister(registration) } }
}

extension [DatagramEvent] {
    fileprivate mutating func split() -> Self {
        defer { removeAll() }
        return self
    }
}

/// Event delivery works for a second kind of socket as for `AsyncSocket`.
@Suite(.timeLimit(.patient)) struct SecondSocketTests {
    private final class Listener: DatagramDelegate, Sendable {
        struct Seen {
            var events: [DatagramEvent] = []
            var wasElsewhere = false
            var hasFoundSource = false
        }

        let seen = Locked(Seen())
        let isInPlace: @Sendable () -> Bool

        init(isInPlace: @escaping @Sendable () -> Bool) { self.isInPlace = isInPlace }

        func socket(_ socket: DatagramSocket, didReceive number: Int) { note(.received(number), socket) }
        func socketDidClose(_ socket: DatagramSocket) { note(.closed, socket) }

        private func note(_ event: DatagramEvent, _ socket: DatagramSocket) {
            let hasFoundSource = socket.withSource { _ in }
            seen.withLock { seen in
                seen.events.append(event)
                seen.wasElsewhere = seen.wasElsewhere || !isInPlace()
                seen.hasFoundSource = seen.hasFoundSource || hasFoundSource
            }
        }
    }

    @Test(arguments: [false, true]) func itsEventsReachItsDelegateInOrder(onQueue: Bool) async throws {
        let loop = try SocketEventLoop()
        let queue = DispatchQueue(label: "datagrams")
        let mark = DispatchSpecificKey<Bool>()
        queue.setSpecific(key: mark, value: true)
        let listener = Listener { onQueue ? DispatchQueue.getSpecific(key: mark) == true : loop.isCurrent }
        let socket = DatagramSocket(listener, queue: onQueue ? queue : nil)
        let source = DatagramSource(of: socket, on: loop)
        let events = (0..<100).map { DatagramEvent.received($0) } + [.closed]
        source.bring(Array(events[..<50]))
        source.bring(Array(events[50...]))
        try await eventually("its end is delivered") { listener.seen.withLock { $0.events.last == .closed } }
        let seen = listener.seen.withLock { $0 }
        #expect(seen.events == events)
        #expect(!seen.wasElsewhere)
        // A call in an inline callback takes effect immediately, and finds its source.
        #expect(seen.hasFoundSource == !onQueue)
        source.end()
    }
}

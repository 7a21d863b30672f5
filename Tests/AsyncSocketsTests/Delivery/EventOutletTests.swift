import Dispatch
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import AsyncSockets

/// Transcripts of `EventOutlet`: inputs, and the events that the delegate receives and where. The source has
/// no turn, and counts the requests.
@Suite(.timeLimit(.patient)) struct EventOutletTests {
    private let audience: Audience
    private let socket: CountingSocket
    private let source: CountingSource
    private let outlet: EventOutlet<CountingSocket>

    init() throws {
        audience = Audience()
        socket = CountingSocket(audience)
        source = CountingSource(try SocketEventLoop())
        outlet = EventOutlet(of: socket)
    }

    private func happen(_ events: CountedEvent...) {
        for event in events { outlet.append(event) }
    }

    private func deliver(on executor: TurnExecutor) { outlet.deliver(on: executor, for: source) }

    // MARK: - Inline

    @Test func eventsAreDeliveredInTheirOrder() {
        happen(1, 2, 3, .end)
        deliver(on: .loop)
        #expect(audience.heard == [1, 2, 3, .end] && outlet.isEmpty && !outlet.isDelivering)
        #expect(source.counts == .init(served: 1))
        deliver(on: .loop)
        #expect(audience.heard.count == 4 && source.counts == .init(served: 1))
    }

    /// Never inside a call by the user.
    @Test(arguments: [(TurnExecutor.loop, true), (.queue, true), (.caller, false)])
    func theCallerIsNotCalledBack(executor: TurnExecutor, isDelivered: Bool) {
        happen(1)
        deliver(on: executor)
        #expect(audience.heard == (isDelivered ? [1] : []))
        #expect(source.counts == (isDelivered ? .init(served: 1) : .init(askedForTurn: 1)))
    }

    @Test func anInlineDeliveryHasSixteenEvents() {
        for number in 0..<40 { happen(.number(number)) }
        for (count, asked) in [(16, 1), (32, 2), (40, 2), (40, 2)] {
            deliver(on: .loop)
            #expect(audience.heard == (0..<count).map { .number($0) })
            #expect(source.counts.askedForTurn == asked)
        }
        #expect(source.counts.served == 1)
    }

    /// Requests made in a callback are served after all pending events, followed by their own events.
    @Test func whatACallbackBringsIsDeliveredToo() {
        source.atService.withLock { $0 = [[3], [4]] }
        source.append = { [outlet] in outlet.append($0) }
        happen(1, 2)
        deliver(on: .loop)
        #expect(audience.heard == [1, 2, 3, 4] && source.counts == .init(served: 3))
    }

    @Test func aCallbackIsOneWhileItRuns() {
        var seen: [Bool] = []
        audience.atEvent.withLock {
            $0 = { [outlet] _ in
                let wasDelivering = outlet.leaveCallback()
                seen += [wasDelivering, outlet.isDelivering]
                outlet.resumeCallback(wasDelivering)
                seen.append(outlet.isDelivering)
            }
        }
        happen(1)
        deliver(on: .loop)
        #expect(seen == [true, false, true] && !outlet.isDelivering)
    }

    @Test func whileHeldBackNothingIsDelivered() {
        outlet.isHeldBack = true
        happen(1, .end)
        deliver(on: .loop)
        #expect(audience.heard.isEmpty && source.counts == .init())
        outlet.isHeldBack = false
        deliver(on: .loop)
        #expect(audience.heard == [1, .end])
    }

    // MARK: - One source after the other

    @Test func afterItsSuccessorASourceDeliversItsEndAlone() {
        let ended = Atomic(0)
        outlet.end.whenReached { ended.add(1, ordering: .relaxed) }
        happen(1)
        deliver(on: .loop)
        outlet.supersede()
        happen(2, 3)
        deliver(on: .loop)
        #expect(audience.heard == [1] && outlet.isEmpty && ended.load(ordering: .relaxed) == 0)
        happen(4, .end)
        deliver(on: .loop)
        #expect(audience.heard == [1, .end] && ended.load(ordering: .relaxed) == 1)
    }

    /// The successor is set in a callback, so the events behind it belong to the past connection. Only the
    /// end is delivered.
    @Test func aSuccessorCountsFromTheCallbackOn() {
        audience.atEvent.withLock { $0 = { [outlet] event in if event == 2 { outlet.supersede() } } }
        happen(1, 2, 3, .end)
        deliver(on: .loop)
        #expect(audience.heard == [1, 2, .end])
    }

    @Test func withoutASocketTheEndIsReached() throws {
        let ended = Atomic(false)
        let outlet: EventOutlet<CountingSocket>
        do {
            let socket = CountingSocket(audience)
            outlet = EventOutlet(of: socket)
        }
        outlet.end.whenReached { ended.store(true, ordering: .relaxed) }
        outlet.append(1)
        outlet.append(.end)
        outlet.deliver(on: .loop, for: source)
        #expect(audience.heard.isEmpty && ended.load(ordering: .relaxed))
    }

    // MARK: - On a delegate queue

    private let queue = DispatchQueue(label: "first")
    private let other = DispatchQueue(label: "second")

    /// Waits for all blocks on the queue.
    private func empty(_ queue: DispatchQueue) async {
        await withCheckedContinuation { done in queue.async { done.resume() } }
    }

    @Test func eventsForAQueueAreDeliveredThere() async {
        socket.move(to: queue)
        outlet.changeQueue()
        #expect(outlet.queue === queue)
        queue.suspend()
        happen(1, 2)
        deliver(on: .caller)
        happen(3, .end)
        deliver(on: .caller)
        #expect(audience.heard.isEmpty && source.counts == .init(published: 2))
        queue.resume()
        await empty(queue)
        #expect(audience.heard == [1, 2, 3, .end] && source.counts == .init(published: 2))
    }

    /// The turn already runs on the socket queue, so events are delivered directly.
    @Test func theSocketQueueIsInline() {
        socket.move(to: queue)
        outlet.callBack(on: queue, unlessItIs: queue)
        #expect(outlet.queue == nil)
    }

    /// Events for the old queue are delivered first, later ones on the new queue, and none is lost.
    @Test func aMoveKeepsTheOrder() async {
        socket.move(to: queue)
        outlet.changeQueue()
        queue.suspend()
        happen(1)
        deliver(on: .caller)
        socket.move(to: other)
        outlet.changeQueue()
        happen(2)
        deliver(on: .caller)
        await empty(other)
        queue.resume()
        await empty(queue)
        await empty(other)
        #expect(audience.heard == [1, 2])
    }

    /// Inline from now on. Events waiting for the old queue are delivered first, and the source is told to
    /// try again.
    @Test func aDelegateThatBecomesInlineWaitsForItsQueue() async {
        socket.move(to: queue)
        outlet.changeQueue()
        queue.suspend()
        happen(1)
        deliver(on: .caller)
        socket.move(to: nil)
        outlet.changeQueue()
        happen(2)
        deliver(on: .loop)
        #expect(audience.heard.isEmpty && source.counts == .init(published: 1))
        queue.resume()
        await empty(queue)
        #expect(audience.heard == [1] && source.counts == .init(askedForTurn: 1, published: 1))
        deliver(on: .loop)
        #expect(audience.heard == [1, 2])
    }

    /// The delegate has moved to a queue, but the message about it has not arrived.
    @Test func aDelegateWithAQueueIsNotCalledInline() async {
        socket.move(to: queue)
        happen(1)
        deliver(on: .loop)
        #expect(audience.heard.isEmpty && outlet.queue === queue && source.counts == .init(askedForTurn: 1))
        deliver(on: .caller)
        await empty(queue)
        #expect(audience.heard == [1])
    }
}

/// Records the events, and performs an action with each of them.
private final class Audience: Sendable {
    private let events = Locked<[CountedEvent]>([])
    let atEvent = Locked<((CountedEvent) -> Void)?>(nil)

    var heard: [CountedEvent] { events.withLock { $0 } }

    func hear(_ event: CountedEvent) {
        events.withLock { $0.append(event) }
        atEvent.withLock { $0 }?(event)
    }
}

private enum CountedEvent: SocketEvent, Equatable, ExpressibleByIntegerLiteral {
    case number(Int)
    case end

    init(integerLiteral number: Int) { self = .number(number) }

    var isEnd: Bool { self == .end }
    var isProgress: Bool { false }

    mutating func absorb(_ next: CountedEvent) -> Bool { false }
}

private final class CountingSocket: EventSocket {
    typealias Event = CountedEvent
    typealias Source = CountingSource

    let socketQueue: DispatchQueue? = nil
    private let audience: Audience
    private let place = Locked<(queue: DispatchQueue?, changes: Int)>((nil, 0))

    init(_ audience: Audience) { self.audience = audience }

    func move(to queue: DispatchQueue?) { place.withLock { $0 = (queue, $0.changes + 1) } }

    var delegateQueue: DispatchQueue? { place.withLock { $0.queue } }
    var delegateChangeCount: Int { place.withLock { $0.changes } }

    func copyDelegate(to delegate: inout Audience?, _ queue: inout DispatchQueue?) {
        (delegate, queue) = (audience, delegateQueue)
    }

    func deliver(_ event: consuming CountedEvent, to delegate: Audience?) { delegate?.hear(event) }
    func beginCallbacks(of source: CountingSource) {}
    func endCallbacks() {}
}

private final class CountingSource: EventSource, @unchecked Sendable {
    // Unchecked: `append` is set before anything is delivered.
    struct Counts: Equatable {
        var askedForTurn = 0
        var served = 0
        var published = 0
    }

    let loop: SocketEventLoop
    private let state = Locked(Counts())
    /// The pending events at each service.
    let atService = Locked<[[CountedEvent]]>([])
    var append: ((CountedEvent) -> Void)?

    init(_ loop: SocketEventLoop) { self.loop = loop }

    var counts: Counts { state.withLock { $0 } }
    var isCurrent: Bool { true }

    func wishForTurn() { askForTurn() }
    func askForTurn() { state.withLock { $0.askedForTurn += 1 } }
    func publishProgress() { state.withLock { $0.published += 1 } }

    func serveRequests() {
        state.withLock { $0.served += 1 }
        let events = atService.withLock { $0.isEmpty ? [] : $0.removeFirst() }
        for event in events { append?(event) }
    }
}

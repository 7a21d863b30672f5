import AsyncSocketsTesting
import Dispatch
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Returns the two ends of a socket pair.
private func makeSocketPair() throws -> (SocketDescriptor, SocketDescriptor) {
    let (near, far) = try RawSocket.pair()
    return (SocketDescriptor(takingOver: near.duplicate()), SocketDescriptor(takingOver: far.duplicate()))
}

extension SocketDescriptor {
    fileprivate func send(_ text: String) {
        Array(text.utf8).withUnsafeBytes { _ = send($0) }
    }
}

/// Passes events to a closure.
private final class Handler: EventHandler {
    private let body: @Sendable (LoopEvents) -> Void

    init(_ body: @escaping @Sendable (LoopEvents) -> Void) {
        self.body = body
    }

    func handle(_ events: LoopEvents) { body(events) }
}

@Suite(.timeLimit(.patient)) struct EventLoopTests {
    @Test func aWatchedDescriptorIsReportedReadableOnce() async throws {
        let loop = try SocketEventLoop()
        let (near, far) = try makeSocketPair()
        let (events, continuation) = AsyncStream<LoopEvents>.makeStream()
        let registration = loop.register(Handler { continuation.yield($0) })
        try loop.watch(near, for: registration)
        var iterator = events.makeAsyncIterator()
        #expect(await iterator.next() == .writable)
        far.send("x")
        let event = await iterator.next()
        #expect(event?.contains(.readable) == true)
        loop.unwatch(near)
        loop.deregister(registration)
        #expect(loop.registrationCount == 0)
    }

    @Test func theFINIsReportedWithTheBytesBeforeIt() async throws {
        let loop = try SocketEventLoop()
        let (near, far) = try makeSocketPair()
        far.send("last words")
        far.close()
        let (events, continuation) = AsyncStream<LoopEvents>.makeStream()
        let registration = loop.register(Handler { continuation.yield($0) })
        try loop.watch(near, for: registration)
        var iterator = events.makeAsyncIterator()
        let event = await iterator.next()
        #expect(event?.contains([.readable, .readHangup]) == true)
        let buffer = PreBuffer()
        var answer = SocketDescriptor.ReceiveAnswer.bytes(0)
        while case .bytes(let count) = answer {
            buffer.commit(count)
            answer = near.receive(into: buffer.writableBytes(minimum: 100))
        }
        #expect(String(decoding: buffer.readableBytes, as: UTF8.self) == "last words")
        guard case .endOfFile = answer else {
            Issue.record("no end of file after the bytes: \(answer)")
            return
        }
        loop.unwatch(near)
        loop.deregister(registration)
    }

    @Test func aDeadlineComesInTimeAndARemovedOneDoesNotCome() async throws {
        let loop = try SocketEventLoop()
        let (events, continuation) = AsyncStream<String>.makeStream()
        let late = loop.register(Handler { _ in continuation.yield("late") })
        let early = loop.register(Handler { _ in continuation.yield("early") })
        let removed = loop.register(Handler { _ in continuation.yield("removed") })
        let start = Deadline.now
        // This runs on the loop, which does not deliver events before it has all of them.
        run(on: loop) { loop in
            loop.setDeadline(Deadline(after: 0.06, from: start), of: late)
            loop.setDeadline(Deadline(after: 0.02, from: start), of: removed)
            loop.setDeadline(Deadline(after: 0.03, from: start), of: early)
            loop.deregister(removed)
        }
        var iterator = events.makeAsyncIterator()
        #expect(await iterator.next() == "early")
        #expect(Deadline.now.seconds(since: start) >= 0.03)
        #expect(await iterator.next() == "late")
        #expect(Deadline.now.seconds(since: start) >= 0.06)
        loop.deregister(late)
        loop.deregister(early)
    }

    @Test func aMovedDeadlineComesOnceAtItsNewTime() async throws {
        let loop = try SocketEventLoop()
        let (events, continuation) = AsyncStream<Double>.makeStream()
        let start = Deadline.now
        let registration = loop.register(Handler { _ in continuation.yield(Deadline.now.seconds(since: start)) })
        let end = loop.register(Handler { _ in continuation.finish() })
        run(on: loop) { loop in
            loop.setDeadline(Deadline(after: 0.01, from: start), of: registration)
            loop.setDeadline(Deadline(after: 0.05, from: start), of: registration)
            loop.setDeadline(Deadline(after: 0.1, from: start), of: end)
        }
        var times: [Double] = []
        for await time in events { times.append(time) }
        #expect(times.count == 1)
        #expect(times.allSatisfy { $0 >= 0.05 })
        loop.deregister(registration)
        loop.deregister(end)
    }

    /// Runs `body` in a separate turn.
    private func run(on loop: SocketEventLoop, _ body: @escaping @Sendable (SocketEventLoop) -> Void) {
        let own = Locked<LoopRegistration?>(nil)
        let registration = loop.register(
            Handler { _ in
                body(loop)
                if let own = own.withLock({ $0.take() }) { loop.deregister(own) }
            })
        own.withLock { $0 = registration }
        loop.resume(registration)
    }

    /// A handler that always wants another turn, and one whose descriptor becomes ready meanwhile.
    @Test func aBusyHandlerDoesNotStarveTheOthers() async throws {
        let loop = try SocketEventLoop()
        let (near, far) = try makeSocketPair()
        let stop = Locked(false)
        let own = Locked<LoopRegistration?>(nil)
        let busy = loop.register(
            Handler { [weak loop] _ in
                if !stop.withLock({ $0 }), let own = own.withLock({ $0 }) { loop?.resume(own) }
            })
        own.withLock { $0 = busy }
        loop.resume(busy)
        let (events, continuation) = AsyncStream<LoopEvents>.makeStream()
        let other = loop.register(Handler { continuation.yield($0) })
        try loop.watch(near, for: other)
        far.send("x")
        var sawReadable = false
        for await event in events where event.contains(.readable) {
            sawReadable = true
            break
        }
        #expect(sawReadable)
        stop.withLock { $0 = true }
        loop.unwatch(near)
        loop.deregister(other)
        loop.deregister(busy)
    }

    /// The kernel reuses a closed descriptor's number for the next socket. Events of the old one must not
    /// reach the new one's handler.
    @Test func aReusedDescriptorNumberGetsNoEventOfItsPredecessor() async throws {
        let loop = try SocketEventLoop()
        var reused = 0
        for _ in 0..<2_000 {
            let (old, oldFar) = try makeSocketPair()
            let oldRegistration = loop.register(Handler { _ in })
            try loop.watch(old, for: oldRegistration)
            oldFar.send("an event in flight")
            let number = old.rawValue
            loop.unwatch(old)
            loop.deregister(oldRegistration)
            old.close()
            oldFar.close()

            let (new, newFar) = try makeSocketPair()
            if new.rawValue == number { reused += 1 }
            let (events, continuation) = AsyncStream<LoopEvents>.makeStream()
            let registration = loop.register(Handler { continuation.yield($0) })
            try loop.watch(new, for: registration)
            var iterator = events.makeAsyncIterator()
            #expect(await iterator.next() == .writable)
            loop.unwatch(new)
            loop.deregister(registration)
            newFar.close()
        }
        #expect(reused > 0)
        #expect(loop.registrationCount == 0)
    }

    @Test func aStaleRegistrationIsIgnored() throws {
        let loop = try SocketEventLoop()
        let first = loop.register(Handler { _ in })
        loop.deregister(first)
        let second = loop.register(Handler { _ in })
        #expect(first != second)
        loop.deregister(first)
        #expect(loop.registrationCount == 1)
        loop.deregister(second)
        #expect(loop.registrationCount == 0)
    }

    @Test func aTurnCanBeAskedForFromAnyThread() async throws {
        let loop = try SocketEventLoop()
        let (events, continuation) = AsyncStream<LoopEvents>.makeStream()
        let registration = loop.register(Handler { continuation.yield($0) })
        var iterator = events.makeAsyncIterator()
        for _ in 0..<100 {
            DispatchQueue.global().async { loop.resume(registration) }
            #expect(await iterator.next() == .resumed)
        }
        loop.deregister(registration)
    }

    @Test func aCallOnALoopIsMadeThoughNoOneKeepsTheLoop() async throws {
        let (calls, continuation) = AsyncStream<Void>.makeStream()
        try SocketEventLoop().run { continuation.finish() }
        for await _ in calls {}
    }

    @Test func theEndOfALoopEndsItsRegistrations() async throws {
        let (turns, continuation) = AsyncStream<Void>.makeStream()
        var handler: Handler? = Handler { _ in continuation.yield() }
        weak let end = handler
        var loop: SocketEventLoop? = try SocketEventLoop()
        if let handler, let loop { loop.resume(loop.register(handler)) }
        var iterator = turns.makeAsyncIterator()
        _ = await iterator.next()
        handler = nil
        loop = nil
        try await eventually("the handler is deallocated") { end == nil }
    }

    @Test func deadlinesThatAreReplacedOrWhoseOwnerLeavesAreNotKept() throws {
        let loop = try SocketEventLoop()
        let kept = loop.register(Handler { _ in })
        for seconds in 0..<10_000 { loop.setDeadline(Deadline(after: 1_000 + Double(seconds)), of: kept) }
        #expect(loop.deadlineCount < 200)
        for _ in 0..<10_000 {
            let passing = loop.register(Handler { _ in })
            loop.setDeadline(Deadline(after: 1_000), of: passing)
            loop.deregister(passing)
        }
        #expect(loop.deadlineCount < 200)
        loop.deregister(kept)
    }
}

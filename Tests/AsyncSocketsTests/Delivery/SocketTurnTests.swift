import Dispatch
import Foundation
import SocketBuffers
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A counter that is protected only by the turn.
private final class Counter: TurnOwner, @unchecked Sendable {
    enum Message: Sendable {
        case add(thread: Int, number: Int)
        case addAgain
        case report(CheckedContinuation<Void, Never>)
        case call(@Sendable () -> Void)
    }

    let turn: SocketTurn<Message>
    var total = 0
    var isInside = false
    var overlaps = 0
    var lastOfThread: [Int: Int] = [:]
    var outOfOrder = 0
    var leftovers = 0
    /// The loop must run another turn.
    var wantsTurn = false
    var asks = 0
    var asksOfFreeTurn = 0
    /// Closures that the owner calls when no messages are left.
    var userCode: [() -> Void] = []
    var isCallingUser = false

    init(queue: DispatchQueue? = nil) {
        turn = SocketTurn(queue: queue)
    }

    func receive(_ message: Message) {
        if isInside { overlaps += 1 }
        isInside = true
        defer { isInside = false }
        switch message {
        case .add(let thread, let number):
            if let last = lastOfThread[thread], number <= last { outOfOrder += 1 }
            lastOfThread[thread] = number
            total += 1
        case .addAgain:
            total += 1
            turn.post(.add(thread: -1, number: total), to: self)
        case .report(let continuation):
            continuation.resume()
        case .call(let body):
            userCode.append(body)
        }
    }

    func finishTurn(on executor: TurnExecutor) -> Bool {
        if !userCode.isEmpty {
            let calls = userCode
            userCode = []
            isCallingUser = true
            for call in calls { call() }
            isCallingUser = false
        }
        return wantsTurn
    }

    func leaveRestToLoop() { leftovers += 1 }

    /// Starts the turn here. The real loop would start it immediately on another thread.
    func askForTurn() {
        asks += 1
        if turn.enterIfFree() {
            asksOfFreeTurn += 1
            wantsTurn = false
            turn.leaveOrDrain(self)
        }
    }

    func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }

    /// Waits until all earlier messages are processed.
    func settle() async {
        await withCheckedContinuation { turn.post(.report($0), to: self) }
    }
}

@Suite(.timeLimit(.patient)) struct SocketTurnTests {
    @Test(arguments: [false, true])
    func messagesFromManyThreadsNeverOverlapAndKeepEachThreadsOrder(onQueue: Bool) async {
        let counter = Counter(queue: onQueue ? DispatchQueue(label: "turns") : nil)
        await withTaskGroup(of: Void.self) { group in
            for thread in 0..<4 {
                group.addTask {
                    for number in 1...5_000 { counter.turn.post(.add(thread: thread, number: number), to: counter) }
                }
            }
        }
        await counter.settle()
        #expect(counter.total == 20_000)
        #expect(counter.overlaps == 0)
        #expect(counter.outOfOrder == 0)
    }

    @Test func aMessagePostedFromInsideIsHandledAfterwards() async {
        let counter = Counter()
        counter.turn.post(.addAgain, to: counter)
        await counter.settle()
        #expect(counter.total == 2)
        #expect(counter.overlaps == 0)
    }

    @Test func whatUserCodePostsIsHandledWhileItRuns() {
        let counter = Counter()
        let totals = Locked<[Int]>([])
        counter.turn.post(
            .call {
                counter.turn.post(.add(thread: 0, number: 1), to: counter)
                totals.withLock { $0.append(counter.total) }
            }, to: counter)
        #expect(totals.withLock { $0 } == [1])
    }

    @Test func whatUserCodePostsDoesNotOvertakeWhatOthersHavePosted() async {
        let counter = Counter()
        let totals = Locked<[Int]>([])
        counter.turn.post(
            .call {
                let isPosted = DispatchSemaphore(value: 0)
                Thread.detachNewThread {
                    counter.turn.post(.add(thread: 0, number: 1), to: counter)
                    isPosted.signal()
                }
                isPosted.wait()
                counter.turn.post(.add(thread: 0, number: 2), to: counter)
                totals.withLock { $0.append(counter.total) }
            }, to: counter)
        await counter.settle()
        #expect(totals.withLock { $0 } == [0])
        #expect(counter.total == 2 && counter.outOfOrder == 0 && counter.overlaps == 0)
    }

    @Test func anyFreeTurnIsTakenAtOnceByTheCaller() {
        let counter = Counter()
        counter.turn.post(.add(thread: 0, number: 1), to: counter)
        #expect(counter.total == 1)
    }

    /// If woken earlier, it would find the turn taken and have to post a message.
    @Test func theLoopIsWokenOnceWhenTheTurnIsFreeAgain() {
        let counter = Counter()
        counter.wantsTurn = true
        counter.turn.post(.addAgain, to: counter)
        #expect(counter.total == 2)
        #expect(counter.asks == 1 && counter.asksOfFreeTurn == 1)
        let isFree = counter.turn.enterIfFree()
        #expect(isFree)
        counter.turn.leaveOrDrain(counter, asking: true)
        #expect(counter.asks == 2 && counter.asksOfFreeTurn == 2)
    }

    /// The executor does not run the turn forever. The remaining messages wait for the owner's loop.
    @Test func aTurnThatFillsItselfIsLeftToTheLoop() {
        let chain = Chain()
        chain.turn.post(1_000, to: chain)
        #expect(chain.handled > 0 && chain.handled < 100)
        #expect(chain.leftovers == 1)
        let handled = chain.handled
        chain.turn.post(0, to: chain)
        #expect(chain.handled > handled && chain.handled < 2 * handled + 10)
        #expect(chain.leftovers == 2)
    }
}

/// Each message posts the next smaller one.
private final class Chain: TurnOwner, @unchecked Sendable {
    let turn = SocketTurn<Int>(queue: nil)
    var handled = 0
    var leftovers = 0

    func receive(_ message: Int) {
        handled += 1
        if message > 0 { turn.post(message - 1, to: self) }
    }

    func finishTurn(on executor: TurnExecutor) -> Bool { false }
    var isCallingUser: Bool { false }
    func leaveRestToLoop() { leftovers += 1 }
    func askForTurn() {}

    func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }
}

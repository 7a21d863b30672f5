import AsyncSocketsTesting
import Dispatch
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Handshake steps with several keys, one of which is slow.
@Suite(.timeLimit(.patient)) struct HandshakeWorkersTests {
    private let slow = WorkKey.signing(1)
    private let fast = WorkKey.signing(2)

    /// Blocks steps until the test has checked the state.
    private final class Gate: Sendable {
        private let semaphore = DispatchSemaphore(value: 0)
        let begun = Locked(0)

        func wait() {
            begun.withLock { $0 += 1 }
            semaphore.wait()
        }

        func open(for count: Int) {
            for _ in 0..<count { semaphore.signal() }
        }
    }

    @Test(arguments: [2, 3, 8]) func aSlowKeyLeavesAWorkerToTheOthers(count: Int) async throws {
        let workers = HandshakeWorkers(count: count)
        let gate = Gate()
        for _ in 0..<20 { #expect(workers.perform(slow) { gate.wait() }) }
        try await eventually("its share runs") { gate.begun.withLock { $0 } == count - 1 }
        let done = Locked<[Int]>([])
        for number in 0..<20 { #expect(workers.perform(fast) { done.withLock { $0.append(number) } }) }
        try await eventually("the others are done") { done.withLock { $0.count } == 20 }
        if count == 2 { #expect(done.withLock { $0 } == Array(0..<20)) }
        #expect(gate.begun.withLock { $0 } == count - 1)
        gate.open(for: 20)
        try await eventually("all have run") { gate.begun.withLock { $0 } == 20 }
    }

    /// One worker, so that the order can be observed.
    @Test func keysTakeTurns() async throws {
        let workers = HandshakeWorkers(count: 1)
        let gate = Gate()
        let order = Locked<[Int]>([])
        #expect(workers.perform(.signing(0)) { gate.wait() })
        try await eventually("it is busy") { gate.begun.withLock { $0 } == 1 }
        for key in [1, 1, 1, 1, 2, 2, 3] { #expect(workers.perform(.signing(key)) { order.withLock { $0.append(key) } }) }
        gate.open(for: 1)
        try await eventually("all have run") { order.withLock { $0.count } == 7 }
        #expect(order.withLock { $0 } == [1, 2, 3, 1, 2, 1, 1])
    }

    @Test func aStepThatWouldWaitTooLongIsRefused() async throws {
        let workers = HandshakeWorkers(count: 2, limit: 1)
        let gate = Gate()
        // The first step takes a fifth of a second. The second one is still running, so the cost of the key
        // stays known.
        for step in 0..<2 {
            let accepted = workers.perform(slow) {
                let end = ContinuousClock.now + .milliseconds(200)
                while step == 0, ContinuousClock.now < end {}
                if step == 1 { gate.wait() }
            }
            #expect(accepted)
        }
        try await eventually("the second one runs") { gate.begun.withLock { $0 } == 1 }
        var acceptedCount = 0
        while acceptedCount < 100, workers.perform(slow, { gate.wait() }) { acceptedCount += 1 }
        #expect((1...6).contains(acceptedCount))
        #expect(workers.perform(fast) {})
        gate.open(for: acceptedCount + 1)
        try await eventually("all have run") { gate.begun.withLock { $0 } == acceptedCount + 1 }
        try await eventually("there is room again") { workers.perform(slow) {} }
    }

    /// The cost of the key is unknown, and its first step does not finish.
    @Test func aKeyThatHangsRefusesSteps() async throws {
        let workers = HandshakeWorkers(count: 2, limit: 0.05)
        let gate = Gate()
        #expect(workers.perform(slow) { gate.wait() })
        try await eventually("it hangs") { gate.begun.withLock { $0 } == 1 }
        let accepted = Locked(0)
        try await eventually("a step is refused") {
            guard workers.perform(slow, { gate.wait() }) else { return true }
            accepted.withLock { $0 += 1 }
            return false
        }
        #expect(workers.perform(fast) {})
        gate.open(for: accepted.withLock { $0 } + 1)
        try await eventually("all have run") { gate.begun.withLock { $0 } == accepted.withLock { $0 } + 1 }
    }

    /// Steps of ended handshakes neither run nor count as waiting.
    @Test func stepsOfEndedHandshakesDoNotCount() async throws {
        let workers = HandshakeWorkers(count: 2, limit: 1)
        let gate = Gate()
        let (isOver, token) = (Locked(false), Token())
        #expect(workers.perform(slow) { gate.wait() })
        try await eventually("it is busy") { gate.begun.withLock { $0 } == 1 }
        // The longer the first step runs, the longer further steps would have to wait, until they are
        // rejected.
        try await eventually("no more are accepted") {
            !workers.perform(slow, isCancelled: { isOver.withLock { $0 } }, { token.use() })
        }
        isOver.withLock { $0 = true }
        #expect(workers.perform(slow) { gate.begun.withLock { $0 += 1 } })
        gate.open(for: 1)
        try await eventually("the last one has run") { gate.begun.withLock { $0 } == 2 }
        #expect(token.uses == 0)
    }

    private final class Token: Sendable {
        private let count = Locked(0)
        var uses: Int { count.withLock { $0 } }
        func use() { count.withLock { $0 += 1 } }
    }

    /// Whatever the cost, because it is only processor time, and each handshake has its own timeout.
    @Test func verifyingTakesAnyWorker() async throws {
        let workers = HandshakeWorkers(count: 2, limit: 0)
        let gate = Gate()
        for _ in 0..<20 { #expect(workers.perform(.verifying(1)) { gate.wait() }) }
        try await eventually("both work") { gate.begun.withLock { $0 } == 2 }
        gate.open(for: 20)
        try await eventually("all have run") { gate.begun.withLock { $0 } == 20 }
    }
}

import SocketTestSupport
import Testing

@testable import SocketCore

@Suite struct DeadlineHeapTests {
    @Test func shuffledDeadlinesLeaveInTheirOrder() throws {
        let start = Deadline.now
        for count in 1...10 {
            for round in 0..<100 {
                var (heap, dice) = (DeadlineHeap(), SeededGenerator(seed: UInt64(round)))
                for number in (0..<count).shuffled(using: &dice) {
                    let deadline = try #require(Deadline(after: Double(number), from: start))
                    heap.insert(deadline, LoopRegistration(index: UInt32(number), generation: 0))
                }
                var order: [UInt32] = []
                while let registration = heap.removeEarliest() { order.append(registration.index) }
                try #require(order == (0..<UInt32(count)).map { $0 })
            }
        }
    }

    @Test func whatIsLeftAfterARemovalIsStillInOrder() throws {
        let start = Deadline.now
        var (heap, dice) = (DeadlineHeap(), SeededGenerator(seed: 1))
        for number in (0..<100).shuffled(using: &dice) {
            let deadline = try #require(Deadline(after: Double(number), from: start))
            heap.insert(deadline, LoopRegistration(index: UInt32(number), generation: 0))
        }
        heap.removeAll { _, registration in registration.index % 3 == 0 }
        var order: [UInt32] = []
        while let registration = heap.removeEarliest() { order.append(registration.index) }
        #expect(order == (0..<100).filter { $0 % 3 != 0 })
    }
}

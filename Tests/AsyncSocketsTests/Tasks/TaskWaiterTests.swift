import Foundation
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// A waiter that serves one operation after the other.
@Suite struct TaskWaiterTests {
    /// Which comes first: the answer, or the task that waits for it.
    enum Order: CaseIterable, Sendable { case answerFirst, waitFirst }

    private static let orders = Order.allCases.flatMap { first in Order.allCases.map { (first, $0) } }

    @Test(arguments: orders) func eachOperationHasItsOwnAnswer(_ first: Order, _ second: Order) async throws {
        let waiter = ReadWaiter(OperationLimit(nil), isScoped: true)
        for (number, order) in [first, second, second, first].enumerated() {
            if number > 0 { waiter.restart(OperationLimit(nil)) }
            #expect(waiter.earlyAnswer == nil)
            let data = try await withUnsafeThrowingContinuation { continuation in
                if order == .waitFirst { waiter.wait(with: continuation) }
                waiter.complete(.success(Data([UInt8(number)])))
                guard order == .answerFirst else { return }
                #expect(waiter.earlyAnswer != nil)
                waiter.wait(with: continuation)
            }
            #expect(data == Data([UInt8(number)]))
        }
    }

    /// Nothing of the limit before is left.
    @Test func eachOperationHasItsOwnLimit() {
        let waiter = ReadWaiter(OperationLimit(.seconds(3600)), isScoped: true)
        #expect(waiter.deadline != nil && Outcome(waiter.lateError) == .failed(.readTimeout))
        waiter.complete(.success(Data()))
        waiter.restart(OperationLimit(nil))
        #expect(waiter.deadline == nil)
        waiter.complete(.success(Data()))
        waiter.restart(OperationLimit(.seconds(1)))
        #expect(waiter.deadline != nil && Outcome(waiter.lateError) == .failed(.readTimeout))
    }
}

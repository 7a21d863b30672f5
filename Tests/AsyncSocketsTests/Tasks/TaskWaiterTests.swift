import Foundation
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// A waiter that is reused for consecutive operations.
@Suite struct TaskWaiterTests {
    /// Whether the result or the waiting task is first.
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

    /// The previous limit has no effect.
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

import Testing

@testable import SocketBuffers

@Suite struct BufferPoolTests {
    @Test func aPoolKeepsNoMoreBlocksThanItsLimit() {
        let pool = BufferPool(spareLimit: 3)
        let blocks = (0..<10).map { _ in pool.take() }
        #expect(pool.spareCount == 0)
        for (number, block) in blocks.enumerated() {
            pool.give(block)
            // The pool keeps two blocks in addition to those counted by the limit.
            #expect(pool.spareCount == min(number + 1, 5))
        }
        let again = (0..<5).map { _ in pool.take() }
        #expect(pool.spareCount == 0)
        #expect(Set(again).isSubset(of: blocks))
        for block in again { pool.give(block) }
    }
}

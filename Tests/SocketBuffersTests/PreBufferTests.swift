import SocketBuffers
import SocketTestSupport
import Testing

@Suite struct PreBufferTests {
    private func bytes(_ buffer: PreBuffer) -> [UInt8] { Array(buffer.readableBytes) }

    private func append(_ text: String, to buffer: PreBuffer) {
        Array(text.utf8).withUnsafeBytes { buffer.append($0) }
    }

    private func endOfFirst(_ delimiter: String, in buffer: PreBuffer) -> Int? {
        Array(delimiter.utf8).withUnsafeBytes { buffer.endOfFirst($0) }
    }

    @Test func bytesLeaveInTheOrderTheyCame() {
        let buffer = PreBuffer()
        append("abc", to: buffer)
        append("def", to: buffer)
        buffer.consume(2)
        #expect(bytes(buffer) == Array("cdef".utf8))
        #expect(buffer.count == 4)
    }

    @Test func delimiterIsFoundAcrossTwoPieces() {
        let buffer = PreBuffer()
        append("220 ready\r", to: buffer)
        #expect(endOfFirst("\r\n", in: buffer) == nil)
        append("\nnext", to: buffer)
        #expect(endOfFirst("\r\n", in: buffer) == 11)
    }

    @Test func delimiterIsFoundAgainAfterConsumingTheFirst() {
        let buffer = PreBuffer()
        append("one\r\ntwo\r\n", to: buffer)
        #expect(endOfFirst("\r\n", in: buffer) == 5)
        buffer.consume(5)
        #expect(endOfFirst("\r\n", in: buffer) == 5)
    }

    @Test func anotherDelimiterIsFoundInBytesAlreadySearched() {
        let buffer = PreBuffer()
        append("a,b;c", to: buffer)
        #expect(endOfFirst("\r\n", in: buffer) == nil)
        buffer.restartSearch()
        #expect(endOfFirst(",", in: buffer) == 2)
    }

    @Test func growsPastOneBlockAndKeepsEveryByte() {
        let buffer = PreBuffer()
        var expected: [UInt8] = []
        for round in 0..<40 {
            let piece = [UInt8](repeating: UInt8(round), count: 9_973)
            piece.withUnsafeBytes { buffer.append($0) }
            expected += piece
            buffer.consume(1_000)
            expected.removeFirst(1_000)
        }
        #expect(bytes(buffer) == expected)
    }

    @Test func anEmptiedBufferGivesItsBlockBackToThePool() {
        let pool = BufferPool(spareLimit: 1)
        let first = PreBuffer(pool: pool)
        let block = first.writableBytes(minimum: 1).baseAddress
        first.commit(1)
        first.consume(1)
        let second = PreBuffer(pool: pool)
        #expect(second.writableBytes(minimum: 1).baseAddress == block)
    }

    @Test func aBufferThatReceivedNothingGivesItsBlockBackToThePool() {
        let pool = BufferPool(spareLimit: 1)
        let first = PreBuffer(pool: pool)
        let block = first.writableBytes(minimum: 1).baseAddress
        first.commit(0)
        let second = PreBuffer(pool: pool)
        #expect(second.writableBytes(minimum: 1).baseAddress == block)
        // The first buffer can be used again.
        append("abc", to: first)
        #expect(bytes(first) == Array("abc".utf8))
    }

    /// The rest of a line may arrive much later.
    @Test func aFewBytesDoNotKeepABlock() {
        let pool = BufferPool(spareLimit: 1)
        let buffer = PreBuffer(pool: pool)
        append("gone220 ready\r", to: buffer)
        buffer.consume(4)
        #expect(endOfFirst("\r\n", in: buffer) == nil && pool.spareCount == 0)
        for _ in 0..<2 {
            buffer.compact()
            #expect(bytes(buffer) == Array("220 ready\r".utf8) && pool.spareCount == 1)
        }
        append("\nnext", to: buffer)
        #expect(pool.spareCount == 0 && endOfFirst("\r\n", in: buffer) == 11)
        buffer.consume(buffer.count)
        buffer.compact()
        #expect(pool.spareCount == 1)
    }

    /// Random steps, compared with an array.
    @Test(arguments: UInt64(0)..<20) func noByteIsLost(seed: UInt64) {
        var dice = SeededGenerator(seed: seed)
        let buffer = PreBuffer(pool: BufferPool(spareLimit: 1))
        let random = Self.random
        var expected: [UInt8] = []
        for _ in 0..<2_000 {
            switch Int.random(in: 0..<6, using: &dice) {
            case 0, 1:
                let count = Int.random(in: 0...[20, 3_000, 50_000][Int.random(in: 0..<3, using: &dice)], using: &dice)
                let piece = random[Int.random(in: 0...random.count - count, using: &dice)...].prefix(count)
                piece.withUnsafeBytes { buffer.append($0) }
                expected += piece
            case 2, 3:
                let count = min(Int.random(in: 0...60_000, using: &dice), expected.count)
                buffer.consume(count)
                expected.removeFirst(count)
            case 4: buffer.compact()
            default:
                let piece = [UInt8](repeating: 7, count: Int.random(in: 0...100, using: &dice))
                piece.withUnsafeBytes { buffer.prepend($0) }
                expected = piece + expected
            }
            // Faster than an expectation for each step.
            guard buffer.count == expected.count else { break }
        }
        #expect(buffer.count == expected.count)
        #expect(bytes(buffer) == expected)
    }

    private static let random: [UInt8] = {
        var dice = SeededGenerator(seed: 0)
        return (0..<12_500).flatMap { _ in withUnsafeBytes(of: dice.next()) { Array($0) } }
    }()

    @Test func movingLeavesTheSourceEmpty() {
        let plain = PreBuffer()
        let ssl = PreBuffer()
        append("leftover", to: plain)
        plain.moveAll(to: ssl)
        #expect(plain.isEmpty)
        #expect(bytes(ssl) == Array("leftover".utf8))
    }

    @Test func aNearlyFullBlockIsGivenAwayWithItsBytes() throws {
        let buffer = PreBuffer()
        let sent = (0..<60_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        sent.withUnsafeBytes { buffer.append($0) }
        buffer.consume(5)
        let taken = try #require(buffer.takeBlock(59_995))
        #expect(buffer.isEmpty)
        append("something else", to: buffer)
        #expect(Array(UnsafeRawBufferPointer(start: taken.start, count: taken.count)) == Array(sent[5...]))
        #expect(bytes(buffer) == Array("something else".utf8))
        taken.giveBack()
    }

    @Test(arguments: [(count: 1000, taken: 1000), (60_000, 59_000), (100_000, 100_000)])
    func aBlockThatIsNotNearlyFullOrNotTakenWholeStays(count: Int, taken: Int) {
        let buffer = PreBuffer()
        [UInt8](repeating: 1, count: count).withUnsafeBytes { buffer.append($0) }
        #expect(buffer.takeBlock(taken) == nil)
        #expect(buffer.count == count)
    }
}

import SocketBuffers
import Testing

@Suite struct RingTests {
    /// Appends and consumes in random order, wrapping around and growing.
    @Test func elementsLeaveInTheOrderTheyCame() {
        var generator = SystemRandomNumberGenerator()
        var ring = Ring<String>()
        var (next, expected) = (0, 0)
        for _ in 0..<10_000 {
            if Bool.random(using: &generator) {
                ring.append("element \(next)")
                next += 1
            } else if let first = ring.popFirst() {
                #expect(first == "element \(expected)")
                expected += 1
            } else {
                #expect(next == expected)
            }
            #expect(ring.count == next - expected)
            #expect(ring[0]?.pointee == (next == expected ? nil : "element \(expected)"))
        }
    }

    @Test func anElementIsChangedWhereItLies() {
        var ring = Ring<Int>()
        for number in 0..<3 { ring.append(number) }
        ring[1]?.pointee = 10
        #expect(ring[1]?.pointee == 10)
        #expect(ring[3] == nil)
        _ = ring.popFirst()
        #expect(ring.popFirst() == 10)
    }

    @Test(arguments: [0, 1, 63, 64, 65, 1000])
    func whatIsLeftIsReleasedOnce(count: Int) {
        weak var taken: Token?
        let tally = Tally()
        do {
            var ring = Ring<Token>()
            for _ in 0..<count { ring.append(Token(tally)) }
            for _ in 0..<count / 2 { taken = ring.popFirst() }
            #expect(tally.alive == count - count / 2)
            ring.removeAll()
            #expect(tally.alive == 0)
            for _ in 0..<count { ring.append(Token(tally)) }
            #expect(ring.count == count)
        }
        #expect(tally.alive == 0)
        #expect(taken == nil)
    }

    private final class Tally {
        var alive = 0
    }

    private final class Token {
        private let tally: Tally

        init(_ tally: Tally) {
            self.tally = tally
            tally.alive += 1
        }

        deinit { tally.alive -= 1 }
    }
}

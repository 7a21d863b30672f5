import SocketTestSupport
import Testing

@testable import SocketBuffers

@Suite struct RingTests {
    /// Appends and consumes in random order, wrapping around and growing. `RING_SEED` replays the last case;
    /// the first two never change.
    @Test(arguments: [0, 1, Seeds.first("RING_SEED")]) func elementsLeaveInTheOrderTheyCame(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var ring = Ring<String>()
        var (next, expected) = (0, 0)
        for _ in 0..<10_000 {
            if Bool.random(using: &generator) {
                ring.append("element \(next)")
                next += 1
            } else if let first = ring.popFirst() {
                #expect(first == "element \(expected)", "RING_SEED=\(seed)")
                expected += 1
            } else {
                #expect(next == expected)
            }
            #expect(ring.count == next - expected)
            #expect(ring[0]?.pointee == (next == expected ? nil : "element \(expected)"))
        }
    }

    /// From each position of the front, the ring grows by one, and each element is removed.
    @Test func everyPositionWrapsAroundAndGrows() {
        for front in 0..<16 {
            for count in 0...16 {
                for removed in 0..<max(count, 1) {
                    var ring = Ring<Int>()
                    for number in -front..<count { ring.append(number) }
                    for number in -front..<0 { #expect(ring.popFirst() == number) }
                    ring.append(count)
                    #expect(ring.remove(at: removed) == removed)
                    #expect(ring.remove(at: count + 1) == nil)
                    var rest: [Int?] = []
                    for offset in 0..<ring.count { rest.append(ring[offset]?.pointee) }
                    #expect(rest == (0...count).filter { $0 != removed })
                }
            }
        }
    }

    /// An empty ring keeps at most 64 places, however many elements were in it.
    @Test func anEmptyRingKeepsLittleMemory() {
        var ring = Ring<Int>()
        for count in [1, 64, 65, 10_000] {
            for _ in 0..<10_000 / count {
                for number in 0..<count { ring.append(number) }
                for _ in 0..<count { _ = ring.popFirst() }
                #expect(ring.isEmpty && ring.capacity <= 64)
            }
            for number in 0..<count { ring.append(number) }
            while ring.remove(at: ring.count - 1) != nil {}
            #expect(ring.isEmpty && ring.capacity <= 64)
            ring.removeAll()
            #expect(ring.capacity == 0)
        }
        // One element stays, and the ring reuses the free places.
        for _ in 0..<10_000 {
            ring.append(1)
            ring.append(2)
            _ = ring.popFirst()
            while ring.count > 1 { _ = ring.popFirst() }
        }
        #expect(ring.count == 1 && ring.capacity <= 4)
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

import AsyncSocketsTesting
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Compares the choice of the handshake to replace with a model that searches a list.
@Suite struct HandshakeTableTests {
    /// The handshakes in the order in which they began, and when each source reached its count.
    private struct Model {
        private(set) var handshakes: [(number: UInt64, source: String)] = []
        private var reached: [String: Int] = [:]
        private var time = 0

        private func count(_ source: String) -> Int { handshakes.count { $0.source == source } }

        private mutating func noteCount(of source: String) {
            time += 1
            reached[source] = time
        }

        mutating func begin(_ number: UInt64, _ source: String) {
            handshakes.append((number, source))
            noteCount(of: source)
        }

        mutating func end(_ number: UInt64) -> UInt64? {
            guard let index = handshakes.firstIndex(where: { $0.number == number }) else { return nil }
            noteCount(of: handshakes.remove(at: index).source)
            return number
        }

        mutating func endOldestOfLargestSource() -> UInt64? {
            let most = Set(handshakes.map(\.source)).min {
                (count($1), reached[$0] ?? 0) < (count($0), reached[$1] ?? 0)
            }
            return handshakes.first { $0.source == most }.flatMap { end($0.number) }
        }
    }

    private static func address(_ host: String, port: UInt16) throws -> InternetAddress {
        InternetAddress(try .loopback(host, port: port))
    }

    @Test(arguments: UInt64(0)..<20) func theOldestOfTheLargestSourceIsReplaced(seed: UInt64) throws {
        var (dice, table, model) = (SeededGenerator(seed: seed), HandshakeTable<UInt64>(), Model())
        let sources = ["10.0.0.1", "10.0.0.2", "2001:db8::", "2001:db8:0:1::", "10.0.0.3"]
        var numbers: [UInt64] = []
        for step in 0..<600 {
            switch Int.random(in: 0..<5, using: &dice) {
            case 0...2:
                let source = sources[min(Int.random(in: 0..<8, using: &dice), 4)]
                // An IPv6 network is one source.
                let host = source.hasSuffix("::") ? source + "\(step)" : source
                let number = table.begin(from: try Self.address(host, port: UInt16(step + 1)))
                table.setClient(number, of: number)
                model.begin(number, source)
                numbers.append(number)
            case 3:
                // The number may belong to a handshake that has already been removed.
                guard let number = numbers.randomElement(using: &dice) else { continue }
                #expect(table.end(number) == model.end(number), "seed \(seed), step \(step)")
                #expect(!table.contains(number))
            default:
                #expect(table.endOldestOfLargestSource() == model.endOldestOfLargestSource(), "seed \(seed), step \(step)")
            }
            #expect(table.count == model.handshakes.count)
            #expect(model.handshakes.allSatisfy { table.contains($0.number) })
        }
        while let last = model.endOldestOfLargestSource() { #expect(table.endOldestOfLargestSource() == last) }
        #expect(table.count == 0 && table.endOldestOfLargestSource() == nil)
    }

    /// If each of many sources has one handshake, the oldest is replaced.
    @Test func amongEqualSourcesTheOldestHandshakeIsReplaced() throws {
        var table = HandshakeTable<UInt64>()
        let numbers = try (1...200).map { table.begin(from: try Self.address("10.0.0.\($0)", port: 1)) }
        for number in numbers { table.setClient(number, of: number) }
        for number in numbers { #expect(table.endOldestOfLargestSource() == number) }
    }
}

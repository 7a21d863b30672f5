import SocketCore
import SocketTestTraits
import Testing

/// Damaged headers, the same in every run. The parser must return a result, and whatever it accepts must be a
/// valid header.
@Suite(.timeLimit(.patient)) struct ProxyHeaderMutationTests {
    /// splitmix64.
    private struct Generator: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9e37_79b9_7f4a_7c15
            var mixed = state
            mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
            mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
            return mixed ^ (mixed >> 31)
        }

        /// Changes, inserts, removes or repeats some bytes.
        mutating func damage(_ bytes: inout [UInt8]) {
            for _ in 0..<Int.random(in: 1...4, using: &self) where !bytes.isEmpty {
                let index = Int.random(in: bytes.indices, using: &self)
                switch Int.random(in: 0..<5, using: &self) {
                case 0: bytes[index] = .random(in: 0...255, using: &self)
                case 1: bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &self)
                case 2: bytes.insert(.random(in: 0...255, using: &self), at: index)
                case 3: bytes.removeSubrange(index..<min(bytes.count, index + .random(in: 1...8, using: &self)))
                default: bytes.insert(contentsOf: bytes[index..<min(bytes.count, index + 9)], at: index)
                }
            }
        }
    }

    private static func originals() throws -> [[UInt8]] {
        var withoutChecksum = try ProxyHeader.full()
        withoutChecksum.hasChecksum = false
        let path = try #require(SocketEndpoint(unixPath: "/run/service"))
        return [
            try ProxyHeader.full().encoded(as: .version2), try withoutChecksum.encoded(as: .version2),
            try ProxyHeader(source: path, destination: path).encoded(as: .version2),
            try ProxyHeader.tcp("::1", 1, "fd00::1", 2).encoded(as: .version2), try ProxyHeader.local.encoded(as: .version2),
            try ProxyHeader.tcp("192.0.2.1", 56324, "198.51.100.2", 443).encoded(as: .version1),
            try ProxyHeader.tcp("2001:db8::1", 1, "::1", 65535).encoded(as: .version1),
            try ProxyHeader.unknown.encoded(as: .version1),
        ]
    }

    @Test func damagedHeadersHaveAnAnswerThatHolds() throws {
        var generator = Generator(state: 20_260_101)
        var counts = (complete: 0, incomplete: 0, failed: 0)
        for original in try Self.originals() {
            for _ in 0..<4000 {
                var bytes = original
                generator.damage(&bytes)
                let answer = ProxyHeader.parsed(bytes)
                switch answer {
                case .incomplete(let minimumCount):
                    counts.incomplete += 1
                    #expect(minimumCount > bytes.count)
                case .complete(let header, let consumedCount):
                    counts.complete += 1
                    #expect(consumedCount <= bytes.count)
                    #expect(ProxyHeader.parsed(Array(bytes.prefix(consumedCount))) == answer)
                    #expect(ProxyHeader.parsed(try header.encoded(as: .version2), maximumCount: .max).header == header)
                case .failed(let error):
                    counts.failed += 1
                    #expect(error.code != .notEncodable)
                    #expect(ProxyHeader.parsed(bytes + original).isFailure, "what follows makes it right")
                }
            }
        }
        #expect(counts.complete > 1000 && counts.incomplete > 1000 && counts.failed > 1000)
    }

    @Test func noiseIsNoHeader() {
        var generator = Generator(state: 7)
        for _ in 0..<2000 {
            let noise = (0..<64).map { _ in UInt8.random(in: 0...255, using: &generator) }
            #expect(ProxyHeaderTranscript(of: noise).header == nil)
            // After a signature.
            let block = ProxyHeader.parsed(ProxyHeaderVector.signature + [0x21] + noise)
            if case .complete(_, let consumedCount) = block { #expect(consumedCount <= 13 + noise.count) }
        }
    }
}

extension ProxyHeader.ParsingAnswer {
    fileprivate var header: ProxyHeader? {
        if case .complete(let header, _) = self { header } else { nil }
    }

    fileprivate var isFailure: Bool {
        if case .failed = self { true } else { false }
    }
}

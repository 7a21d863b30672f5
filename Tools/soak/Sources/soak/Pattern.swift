import Foundation

/// Bytes that follow from a number, so that both sides can check them. Peers/Streams/pattern.go and
/// Peers/Datagrams/pattern.c compute the same bytes.
struct Pattern {
    let seed: UInt64

    /// The reply to a request contains different bytes than the request.
    var reply: Pattern { Pattern(seed: ~seed) }

    func bytes(_ range: Range<Int>) -> Data {
        var bytes = Data(capacity: range.count + 16)
        for number in range.lowerBound / 8..<(range.upperBound + 7) / 8 {
            withUnsafeBytes(of: word(number).littleEndian) { bytes.append(contentsOf: $0) }
        }
        return bytes.dropFirst(range.lowerBound % 8).prefix(range.count)
    }

    /// Whether `data` is the pattern's bytes at an offset.
    func matches(_ data: Data, at offset: Int) -> Bool {
        data == bytes(offset..<offset + data.count)
    }

    /// Eight bytes of the pattern, from SplitMix64.
    private func word(_ number: Int) -> UInt64 {
        var choices = Choices(state: seed &+ UInt64(number) &* Choices.step)
        return choices.next()
    }
}

/// Numbers that are different for each seed: SplitMix64.
struct Choices: RandomNumberGenerator {
    fileprivate static let step: UInt64 = 0x9E37_79B9_7F4A_7C15
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= Self.step
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// True in this many of a hundred calls.
    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }

    /// A length of a message: most are short, and a few are longer than the kernel's buffers.
    mutating func length() -> Int {
        let limit =
            switch Int.random(in: 0..<100, using: &self) {
            case ..<70: 1_000
            case ..<95: 16_000
            case ..<99: 100_000
            default: 400_000
            }
        return Int.random(in: 1...limit, using: &self)
    }

    /// A pause between two exchanges.
    mutating func pause(mean: Duration) -> Duration {
        min(mean * -log(Double.random(in: 0.000_1...1, using: &self)), .seconds(60))
    }
}

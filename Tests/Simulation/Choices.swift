/// The source of every decision of a run. The seed determines all of them.
///
/// A decision belongs to a stream: the schedule, one descriptor, or one side of the scenario. Its value
/// depends on the seed, the stream and its number in that stream, so that a change in one stream does not
/// shift the others. Zero is the uneventful choice: the same thread continues, the call succeeds, no
/// operation begins. A failing run is shortened by setting as many of its decisions to zero as possible.
final class Choices {
    /// A stream and the number of a decision in it.
    struct Key: Hashable, Comparable {
        let stream: UInt16
        let index: UInt32

        static func < (left: Key, right: Key) -> Bool { (left.stream, left.index) < (right.stream, right.index) }
    }

    let seed: UInt64
    /// The decisions that may differ from zero. `nil` means all.
    private let kept: Set<Key>?
    /// Whether all decisions are zero except those of the plan. Then each thread runs until it blocks.
    private let isPlanOnly: Bool
    private var counts: [UInt32] = Array(repeating: 0, count: 64)
    /// The decisions that were not zero, in order.
    private(set) var made: [Key] = []

    init(seed: UInt64, kept: Set<Key>? = nil, isPlanOnly: Bool = false) {
        (self.seed, self.kept, self.isPlanOnly) = (seed, kept, isPlanOnly)
    }

    /// Returns a number from 0 to `count - 1`.
    func pick(_ count: Int, _ stream: UInt16) -> Int {
        guard count > 1 else { return 0 }
        return decide(stream) { Int($0 % UInt64(count)) }
    }

    /// Returns `true` once in `rate` times.
    func chance(_ rate: Int, _ stream: UInt16) -> Bool {
        decide(stream) { $0 % UInt64(rate) == 0 ? 1 : 0 } == 1
    }

    private func decide(_ stream: UInt16, _ value: (UInt64) -> Int) -> Int {
        let position = Int(stream)
        let key = Key(stream: stream, index: counts[position])
        counts[position] += 1
        if let kept, !kept.contains(key) { return 0 }
        if isPlanOnly, stream != Stream.setup { return 0 }
        let result = value(Self.mix(seed, UInt64(stream) << 32 | UInt64(key.index)))
        if result != 0 { made.append(key) }
        return result
    }

    /// Returns a number that looks random.
    static func mix(_ seed: UInt64, _ number: UInt64) -> UInt64 {
        var mixed = seed &* 0x9E37_79B9_7F4A_7C15 &+ number &* 0xD1B5_4A32_D192_ED03 &+ 0x632B_E59B_D9B4_E019
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}

extension Choices {
    /// The streams of decisions.
    enum Stream {
        static let setup: UInt16 = 0
        static let schedule: UInt16 = 1
        static let network: UInt16 = 2
        static let events: UInt16 = 3
        /// The first of the streams of the descriptors.
        static let descriptors: UInt16 = 4
        /// The first of the streams of the sides: two for each.
        static let sides: UInt16 = 16
    }
}

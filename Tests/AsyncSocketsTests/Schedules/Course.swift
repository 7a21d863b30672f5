import SocketTestSupport

/// The steps of a schedule: a fixed list, or random steps chosen while the schedule runs.
struct Course<Step: Sendable>: Sendable {
    private var fixed: ArraySlice<Step> = []
    private var dice = SeededGenerator(seed: 0)
    /// The number of random steps that remain.
    private var count = 0

    init(fixed steps: [Step]) {
        fixed = steps[...]
    }

    init(random dice: SeededGenerator, count: ClosedRange<Int>) {
        self.dice = dice
        self.count = Int.random(in: count, using: &self.dice)
    }

    /// Returns the next step, or `nil` at the end.
    ///
    /// - Parameter makeStep: Returns a random step, or `nil` if no such step is possible now.
    mutating func next(_ makeStep: (inout SeededGenerator) -> Step?) -> Step? {
        while count > 0 {
            count -= 1
            if let step = makeStep(&dice) { return step }
        }
        return fixed.popFirst()
    }
}

internal import Glibc

/// Runs many seeds, and shortens the first that fails.
struct Campaign {
    let first: UInt64
    let count: UInt64
    /// How many processes run at the same time.
    let jobs: Int
    /// Whether a failing run is shortened.
    let shortens: Bool
    /// The kind of the runs.
    let name: String

    /// Returns whether all seeds passed.
    func run() -> Bool {
        var waiting: [Zygote.Child] = []
        var next = first
        let end = first + count
        var steps = 0
        while next < end || !waiting.isEmpty {
            while next < end, waiting.count < jobs {
                waiting.append(Zygote.start(next))
                next += 1
            }
            let child = waiting.removeFirst()
            let outcome = child.outcome()
            if case .passed(_, let count) = outcome { steps += count }
            guard outcome.isFailure else { continue }
            for child in waiting { _ = child.outcome() }
            report(child.seed, outcome)
            return false
        }
        print("\(count) seeds passed, from \(first): \(steps) steps")
        return true
    }

    private func report(_ seed: UInt64, _ outcome: Outcome) {
        print("seed \(seed), number \(seed - first + 1): \(outcome)")
        guard shortens, !outcome.made.isEmpty else { return print("replay: Simulation \(name) replay \(seed)") }
        let kept = Shortening(seed: seed).shorten(outcome.made)
        print("shortened: \(Zygote.run(seed, Set(kept)))")
        print("replay: Simulation \(name) replay \(seed) '\(Choices.Key.text(kept))'")
    }
}

/// Sets decisions of a failing run to zero, as long as some invariant is still violated.
struct Shortening {
    let seed: UInt64

    private static let seconds = 60

    /// Returns the decisions that the failure needs. No single one of them can be omitted, unless the time
    /// was too short.
    func shorten(_ made: [Choices.Key]) -> [Choices.Key] {
        var (kept, size) = (made, max(1, made.count / 2))
        let end = time(nil) + Self.seconds
        while true {
            var (position, hasChanged) = (0, false)
            while position < kept.count, time(nil) < end {
                var candidate = kept
                candidate.removeSubrange(position..<min(position + size, kept.count))
                let outcome = Zygote.run(seed, Set(candidate))
                guard case .failed(_, _, _, let made) = outcome else {
                    position += size
                    continue
                }
                // Decisions that the shorter run no longer makes are omitted too.
                kept = candidate.filter(Set(made).contains)
                hasChanged = true
            }
            if time(nil) >= end || size == 1 && !hasChanged { return kept }
            size = size == 1 ? 1 : size / 2
        }
    }
}

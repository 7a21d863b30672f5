/// A histogram of durations with a relative error of at most 1/32, in constant memory.
///
/// Each power of two of nanoseconds is divided into 32 buckets of equal width.
struct LatencyHistogram: Sendable, Equatable {
    private static let bucketsPerPower = 32
    private static let bits = 5

    private var counts: [Int] = []
    private(set) var count = 0
    private(set) var minimum: Duration = .zero
    private(set) var maximum: Duration = .zero
    private var sum: Duration = .zero

    var mean: Duration { count == 0 ? .zero : sum / count }

    mutating func record(_ duration: Duration) {
        let index = Self.index(of: duration.nanoseconds)
        if index >= counts.count { counts += repeatElement(0, count: index + 1 - counts.count) }
        counts[index] += 1
        minimum = count == 0 ? duration : min(minimum, duration)
        maximum = max(maximum, duration)
        sum += duration
        count += 1
    }

    mutating func merge(_ other: LatencyHistogram) {
        guard other.count > 0 else { return }
        if other.counts.count > counts.count { counts += repeatElement(0, count: other.counts.count - counts.count) }
        for (index, number) in other.counts.enumerated() { counts[index] += number }
        minimum = count == 0 ? other.minimum : min(minimum, other.minimum)
        maximum = max(maximum, other.maximum)
        sum += other.sum
        count += other.count
    }

    /// Returns a duration that `percent` of the recorded durations do not exceed: the upper bound of its
    /// bucket, but at most the maximum.
    func percentile(_ percent: Double) -> Duration {
        guard count > 0 else { return .zero }
        let rank = max(1, Int((Double(count) * percent / 100).rounded(.up)))
        var seen = 0
        for (index, number) in counts.enumerated() {
            seen += number
            if seen >= rank { return min(maximum, .nanoseconds(Self.upperBound(ofIndex: index))) }
        }
        return maximum
    }

    /// A range of durations, and how many were recorded in it.
    struct Row: Equatable, Sendable {
        var upperBound: Duration
        var count: Int
    }

    /// The numbers of durations up to 1, 2 and 5 times each power of ten, from the first to the last that is
    /// not zero.
    var rows: [Row] {
        guard count > 0 else { return [] }
        var rows: [Row] = []
        var seen = 0
        for bound in Self.bounds {
            let total = counts.indices.reduce(0) { $0 + (Self.upperBound(ofIndex: $1) <= bound ? counts[$1] : 0) }
            if total > 0 { rows.append(Row(upperBound: .nanoseconds(bound), count: total - seen)) }
            seen = total
            if total == count { break }
        }
        return rows
    }

    /// From a microsecond to more than an hour.
    private static let bounds: [Int] = (3...13).flatMap { power in
        [1, 2, 5].map { factor in (0..<power).reduce(factor) { value, _ in value * 10 } }
    }

    private static func index(of nanoseconds: Int) -> Int {
        guard nanoseconds >= bucketsPerPower else { return max(0, nanoseconds) }
        let power = Int.bitWidth - 1 - nanoseconds.leadingZeroBitCount
        return (power - bits + 1) * bucketsPerPower + (nanoseconds >> (power - bits)) - bucketsPerPower
    }

    private static func upperBound(ofIndex index: Int) -> Int {
        guard index >= bucketsPerPower else { return index }
        let shift = index / bucketsPerPower - 1
        return ((index % bucketsPerPower + bucketsPerPower + 1) << shift) - 1
    }
}

extension Duration {
    /// Nanoseconds, rounded down. Limited to about 292 years.
    var nanoseconds: Int {
        let (seconds, attoseconds) = components
        return Int(seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
    }

    var inSeconds: Double { Double(nanoseconds) / 1e9 }
}

internal import Foundation

/// The median of some values, and a confidence interval for the true median.
struct Estimate: Codable, Sendable {
    let median: Double
    let low: Double
    let high: Double

    /// Returns nil if `values` is empty.
    ///
    /// The interval spans the k-th smallest to the k-th largest value. k is the largest number for which the
    /// interval contains the true median with a probability of at least 90 %, whatever the distribution. It
    /// spans all of five values (94 %), and all but the outermost two of eight (93 %).
    init?(_ values: [Double]) {
        guard !values.isEmpty else { return nil }
        let sorted = values.sorted()
        let (middle, outer) = (sorted.count / 2, Self.outliers(among: sorted.count))
        median = sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
        (low, high) = (sorted[outer], sorted[sorted.count - 1 - outer])
    }

    /// The number of values excluded at each end.
    static func outliers(among count: Int) -> Int {
        // The true median is below the k-th smallest of n values if fewer than k of them are below it, which
        // follows a binomial distribution.
        var (term, below, outer) = (pow(0.5, Double(count)), 0.0, 0)
        for rank in 0..<count / 2 {
            below += term
            if 1 - 2 * below < 0.9 { break }
            outer = rank
            term *= Double(count - rank) / Double(rank + 1)
        }
        return outer
    }

    /// The ratios of values measured in the same round.
    static func ratio(_ own: [Double?], _ peer: [Double?]) -> Estimate? {
        Estimate(zip(own, peer).compactMap { own, peer in own.flatMap { own in peer.flatMap { $0 > 0 ? own / $0 : nil } } })
    }
}

/// The exponent of a cost's growth: the slope of a line fitted to the logarithms.
func growthExponent(_ points: [(size: Double, cost: Double)]) -> Double? {
    let logs = points.filter { $0.size > 0 && $0.cost > 0 }.map { (x: log($0.size), y: log($0.cost)) }
    guard logs.count > 1 else { return nil }
    let count = Double(logs.count)
    let mean = (x: logs.reduce(0) { $0 + $1.x } / count, y: logs.reduce(0) { $0 + $1.y } / count)
    let spread = logs.reduce(0) { $0 + ($1.x - mean.x) * ($1.x - mean.x) }
    return spread > 0 ? logs.reduce(0) { $0 + ($1.x - mean.x) * ($1.y - mean.y) } / spread : nil
}

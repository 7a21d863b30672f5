import Testing

@testable import bench

@Test func theIntervalOfFiveRoundsIsAllOfThem() throws {
    let estimate = try #require(Estimate([5, 1, 4, 2, 3]))
    #expect(estimate.median == 3)
    #expect(estimate.low == 1)
    #expect(estimate.high == 5)
}

@Test(arguments: [(1, 0), (5, 0), (7, 0), (8, 1), (10, 1), (11, 2), (20, 5)])
func theIntervalLeavesOutWhatItCanAtNinetyPercent(count: Int, outliers: Int) {
    #expect(Estimate.outliers(among: count) == outliers)
}

@Test func aRatioIsTakenWithinARoundInWhichBothRunsWereGood() throws {
    let ratio = try #require(Estimate.ratio([2, nil, 40, 6], [1, 500, 20, 3]))
    #expect(ratio.low == 2)
    #expect(ratio.high == 2)
}

@Test func theExponentOfASquareIsTwo() throws {
    let exponent = try #require(growthExponent([1, 10, 100].map { (size: $0, cost: 3 * $0 * $0) }))
    #expect(abs(exponent - 2) < 1e-9)
}

@Test(arguments: [
    (Metric.cpu, [0.8, 0.8, 0.84], Goal.Verdict.met), (.cpu, [0.8, 0.8, 0.9], .undecided), (.cpu, [0.9, 0.9, 0.9], .missed),
    (.rate, [0.9, 0.9, 0.9], .met), (.rate, [0.8, 0.8, 0.9], .undecided), (.rate, [0.8, 0.8, 0.8], .missed),
])
func aGoalIsMetWhenItsWholeIntervalIs(metric: Metric, ratios: [Double], verdict: Goal.Verdict) {
    let goal = Goal(workload: "", metric: metric, peer: "", bound: 0.85)
    #expect(goal.verdict(on: Estimate(ratios)) == verdict)
}

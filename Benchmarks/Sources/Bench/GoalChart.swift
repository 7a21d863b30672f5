internal import Foundation

/// A chart of each goal's ratio and interval relative to its bound. Points left of the line meet the goal.
struct GoalChart {
    struct Row {
        let label: String
        let ratio: Estimate
        let bound: Double
        let isLowerBetter: Bool
        let verdict: Goal.Verdict

        /// The ratio relative to the bound: 1 is the bound, and smaller is better for every metric.
        func used(_ value: Double) -> Double { isLowerBetter ? value / bound : bound / value }
    }

    let title: String
    let rows: [Row]
    let footnote: String

    private static let (left, length, right, height) = (440.0, 420.0, 210.0, 24.0)
    /// The scale spans half to four times the bound. Points outside are drawn at its ends.
    private static let range = 0.5...4.0

    var svg: String {
        var drawing = Drawing()
        drawing.text(
            16, 30, title + ": ratio and interval relative to the bound; left of 1 is met", size: 15, isBold: true)
        let (top, bottom) = (64.0, 64 + Double(rows.count) * Self.height)
        for tick in [0.5, 0.75, 1, 1.5, 2, 3, 4] {
            drawing.line(x(tick), top - 6, x(tick), bottom, tick == 1 ? "#000" : "#ddd", width: tick == 1 ? 1.5 : 1)
            drawing.text(x(tick), top - 10, tick.short, size: 11, anchor: .middle)
        }
        for (index, row) in rows.enumerated() { draw(row, y: top + (Double(index) + 0.5) * Self.height, on: &drawing) }
        drawing.text(16, bottom + 22, footnote, size: 11, color: "#666")
        return drawing.svg(width: Self.left + Self.length + Self.right, height: bottom + 36)
    }

    private func draw(_ row: Row, y: Double, on drawing: inout Drawing) {
        let color = [Goal.Verdict.met: "#009e73", .undecided: "#e69f00", .missed: "#d55e00"][row.verdict] ?? "#999"
        drawing.text(Self.left - 14, y + 4, row.label, size: 11, anchor: .end)
        drawing.line(x(row.used(row.ratio.low)), y, x(row.used(row.ratio.high)), y, color, width: 3)
        drawing.dot(x(row.used(row.ratio.median)), y, color)
        let sign = row.isLowerBetter ? "≤" : "≥"
        let text = "\(row.ratio.median.short), goal \(sign) \(row.bound.short): \(row.verdict.rawValue)"
        drawing.text(Self.left + Self.length + 14, y + 4, text, size: 11, color: color)
    }

    private func x(_ used: Double) -> Double {
        let clamped = min(max(used, Self.range.lowerBound), Self.range.upperBound)
        return Self.left + Self.length * log(clamped / Self.range.lowerBound) / log(Self.range.upperBound / Self.range.lowerBound)
    }
}

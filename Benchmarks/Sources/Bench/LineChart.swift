internal import Foundation

/// A chart of values over sizes with logarithmic axes, so that a power of the size is a straight line.
struct LineChart {
    struct Line {
        let server: String
        let points: [(size: Double, cost: Double)]
        let exponent: Double?
    }

    let title: String
    let horizontal: String
    let vertical: String
    let lines: [Line]
    let footnote: String

    private static let (left, top, width, height, right) = (80.0, 60.0, 520.0, 320.0, 250.0)

    var svg: String {
        let points = lines.flatMap(\.points)
        guard let sizes = range(points.map(\.size)), let costs = range(points.map(\.cost)) else {
            return Drawing().svg(width: 10, height: 10)
        }
        var drawing = Drawing()
        drawing.text(16, 26, title, size: 15, isBold: true)
        drawing.text(Self.left - 60, Self.top - 12, vertical, size: 11)
        drawing.text(Self.left + Self.width, Self.top + Self.height + 36, horizontal, size: 11, anchor: .end)
        let x = { (size: Double) in
            Self.left + Self.width * (log10(size) - sizes.lowerBound) / (sizes.upperBound - sizes.lowerBound)
        }
        let y = { (cost: Double) in
            Self.top + Self.height - Self.height * (log10(cost) - costs.lowerBound) / (costs.upperBound - costs.lowerBound)
        }
        for power in stride(from: sizes.lowerBound, through: sizes.upperBound, by: 1) {
            drawing.line(x(pow(10, power)), Self.top, x(pow(10, power)), Self.top + Self.height, "#ddd")
            drawing.text(x(pow(10, power)), Self.top + Self.height + 18, label(power), size: 11, anchor: .middle)
        }
        for power in stride(from: costs.lowerBound, through: costs.upperBound, by: 1) {
            drawing.line(Self.left, y(pow(10, power)), Self.left + Self.width, y(pow(10, power)), "#ddd")
            drawing.text(Self.left - 8, y(pow(10, power)) + 4, label(power), size: 11, anchor: .end)
        }
        for (index, line) in lines.enumerated() {
            let color = Drawing.color(of: line.server)
            let places = line.points.map { (x: x($0.size), y: y($0.cost)) }
            drawing.path(places, color)
            for place in places { drawing.dot(place.x, place.y, color) }
            let legend = Self.top + 16 + Double(index) * 22
            drawing.rectangle(Self.left + Self.width + 20, legend - 10, 12, 12, color)
            let exponent = line.exponent.map { ", exponent \($0.short)" } ?? ""
            drawing.text(Self.left + Self.width + 38, legend, line.server + exponent)
        }
        drawing.text(16, Self.top + Self.height + 60, footnote, size: 11, color: "#666")
        return drawing.svg(width: Self.left + Self.width + Self.right, height: Self.top + Self.height + 74)
    }

    /// The powers of ten that enclose the values.
    private func range(_ values: [Double]) -> ClosedRange<Double>? {
        let logs = values.filter { $0 > 0 }.map { log10($0) }
        guard let low = logs.min(), let high = logs.max() else { return nil }
        return floor(low)...max(ceil(high), floor(low) + 1)
    }

    private func label(_ power: Double) -> String {
        let value = pow(10, power)
        return value >= 1e6
            ? "\(Int(value / 1e6)) M" : value >= 1e3 ? "\(Int(value / 1e3)) k" : value >= 1 ? "\(Int(value))" : "\(value)"
    }
}

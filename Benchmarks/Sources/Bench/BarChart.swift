/// A chart with groups of horizontal bars, one per server, with values and intervals.
struct BarChart {
    struct Bar {
        let server: String
        let value: Estimate
    }

    struct Group {
        let title: String
        let bars: [Bar]
    }

    let title: String
    let servers: [String]
    let groups: [Group]
    let footnote: String

    private static let (left, length, right, bar) = (130.0, 520.0, 190.0, 18.0)

    var svg: String {
        var drawing = Drawing()
        var y = 30.0
        drawing.text(16, y, title, size: 15, isBold: true)
        y += 14
        for group in groups { draw(group, at: &y, on: &drawing) }
        drawing.text(16, y + 22, footnote, size: 11, color: "#666")
        return drawing.svg(width: Self.left + Self.length + Self.right, height: y + 36)
    }

    private func draw(_ group: Group, at y: inout Double, on drawing: inout Drawing) {
        y += 20
        drawing.text(16, y, group.title, isBold: true)
        y += 8
        let largest = group.bars.map(\.value.high).max() ?? 1
        let scale = Self.length / max(largest, .leastNormalMagnitude)
        for bar in group.bars {
            let middle = y + Self.bar / 2
            let end = Self.left + bar.value.high * scale
            drawing.text(Self.left - 8, middle + 4, bar.server, anchor: .end)
            drawing.rectangle(Self.left, y + 2, bar.value.median * scale, Self.bar - 4, Drawing.color(of: bar.server))
            drawing.line(Self.left + bar.value.low * scale, middle, end, middle, "#000", width: 1.5)
            drawing.text(end + 6, middle + 4, bar.value.text)
            y += Self.bar
        }
    }
}

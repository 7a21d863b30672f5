internal import Foundation

/// Builds an SVG image. Coordinates are pixels from the top left.
struct Drawing {
    enum Anchor: String {
        case start, middle, end
    }

    private var elements: [String] = []

    mutating func rectangle(_ x: Double, _ y: Double, _ width: Double, _ height: Double, _ color: String) {
        elements.append(
            "<rect x=\"\(x.pixel)\" y=\"\(y.pixel)\" width=\"\(width.pixel)\" height=\"\(height.pixel)\" fill=\"\(color)\"/>")
    }

    mutating func line(_ x1: Double, _ y1: Double, _ x2: Double, _ y2: Double, _ color: String, width: Double = 1) {
        elements.append(
            "<line x1=\"\(x1.pixel)\" y1=\"\(y1.pixel)\" x2=\"\(x2.pixel)\" y2=\"\(y2.pixel)\" stroke=\"\(color)\" stroke-width=\"\(width)\"/>"
        )
    }

    mutating func dot(_ x: Double, _ y: Double, _ color: String) {
        elements.append("<circle cx=\"\(x.pixel)\" cy=\"\(y.pixel)\" r=\"4\" fill=\"\(color)\"/>")
    }

    mutating func path(_ points: [(x: Double, y: Double)], _ color: String) {
        let text = points.map { "\($0.x.pixel),\($0.y.pixel)" }.joined(separator: " ")
        elements.append("<polyline points=\"\(text)\" fill=\"none\" stroke=\"\(color)\" stroke-width=\"2\"/>")
    }

    mutating func text(
        _ x: Double, _ y: Double, _ text: String, size: Double = 12, anchor: Anchor = .start, isBold: Bool = false,
        color: String = "#222"
    ) {
        let weight = isBold ? " font-weight=\"bold\"" : ""
        let escaped = text.replacing("&", with: "&amp;").replacing("<", with: "&lt;")
        elements.append(
            "<text x=\"\(x.pixel)\" y=\"\(y.pixel)\" font-size=\"\(size)\" text-anchor=\"\(anchor.rawValue)\" fill=\"\(color)\"\(weight)>\(escaped)</text>"
        )
    }

    func svg(width: Double, height: Double) -> String {
        let size = "width=\"\(width.pixel)\" height=\"\(height.pixel)\" viewBox=\"0 0 \(width.pixel) \(height.pixel)\""
        let head = "<svg xmlns=\"http://www.w3.org/2000/svg\" \(size) font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\">"
        let ground = "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        return ([head, ground] + elements + ["</svg>"]).joined(separator: "\n") + "\n"
    }

    /// The color of a server, the same in all charts. The palette is suitable for color-blind readers.
    static func color(of server: String) -> String {
        let colors = [
            Server.ours: "#0072b2", Server.oursWithQueue: "#56b4e9", Server.oursWithTasks: "#003f66",
            Server.nio: "#e69f00", Server.nioWithTasks: "#f0e442", Server.nioWithTasksOnLoop: "#a67200",
            Server.floor: "#555555", Server.floorWithTickets: "#aaaaaa", Server.go: "#44aa99", "libevent": "#cc79a7",
            "asio": "#009e73", Server.tokio: "#882255",
        ]
        return colors[server] ?? "#d55e00"
    }
}

extension Double {
    fileprivate var pixel: String { String(format: "%.1f", self) }
}

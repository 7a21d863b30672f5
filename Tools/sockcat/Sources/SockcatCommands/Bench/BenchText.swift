internal import FoundationEssentials
internal import Glibc

/// The result of a run as text for people.
struct BenchText {
    let report: BenchReport
    let style: TerminalStyle

    private static let barWidth = 40

    var full: PrintableText {
        let noun = report.connections == 1 ? "connection" : "connections"
        var lines: [PrintableText] = [
            style.bold("\(report.target)") + style.dim(", \(report.connections) \(noun), \(Self.number(report.seconds)) s"),
            "  " + style.bold("\(Self.number(report.perSecond)) \(unit) per second")
                + (report.failures > 0 ? ", " + style.red("\(report.failures) failed") : ""),
        ]
        if let resumed = report.resumed, resumed < report.count {
            lines.append("  " + style.yellow("\(report.count - resumed) of \(report.count) handshakes were not resumed"))
        }
        lines += throughput + percentiles + histogram
        return lines.asLines
    }

    private var unit: String { BenchMeasurement(rawValue: report.measured)?.unit ?? report.measured }

    private var throughput: [PrintableText] {
        var lines: [PrintableText] = []
        if report.bytesSent > 0 { lines.append("  sent      \(Self.bytes(report.bytesSentPerSecond)) per second") }
        if report.bytesReceived > 0 { lines.append("  received  \(Self.bytes(report.bytesReceivedPerSecond)) per second") }
        return lines
    }

    private var percentiles: [PrintableText] {
        let latency = report.latency
        let rows: [(PrintableText, Double)] = [
            ("minimum", latency.minimum), ("mean", latency.mean), ("50 %", latency.p50), ("90 %", latency.p90),
            ("99 %", latency.p99), ("99.9 %", latency.p999), ("maximum", latency.maximum),
        ]
        return rows.map { name, seconds in
            "  \(style.dim(name.padded(to: 10)))\(Self.time(seconds))"
        }
    }

    private var histogram: [PrintableText] {
        let largest = report.histogram.map(\.count).max() ?? 1
        return report.histogram.map { bucket in
            let label: PrintableText = "up to \(Self.bound(bucket.upTo))"
            let width = max(bucket.count > 0 ? 1 : 0, bucket.count * Self.barWidth / max(largest, 1))
            let bar = style.green("\(String(repeating: "█", count: width))")
            return "  \(label.padded(to: 16))\(bar) \(bucket.count)"
        }
    }

    // MARK: - Numbers

    /// Three significant digits: "1.23 ms".
    static func time(_ seconds: Double) -> String {
        switch seconds {
        case ..<1e-3: number(seconds * 1e6) + " µs"
        case ..<1: number(seconds * 1e3) + " ms"
        default: number(seconds) + " s"
        }
    }

    /// The end of a range, which is 1, 2 or 5 times a power of ten: "20 ms".
    static func bound(_ seconds: Double) -> String {
        let text = time(seconds)
        return text.replacing(#/\.0+ /#, with: " ")
    }

    /// Decimal units: "1.23 MB".
    static func bytes(_ count: Double) -> String {
        switch count {
        case ..<1e3: number(count) + " B"
        case ..<1e6: number(count / 1e3) + " kB"
        case ..<1e9: number(count / 1e6) + " MB"
        default: number(count / 1e9) + " GB"
        }
    }

    static func number(_ value: Double) -> String {
        switch value {
        case ..<10: NumberText.fixed(value, digits: 2)
        case ..<100: NumberText.fixed(value, digits: 1)
        default: NumberText.fixed(value, digits: 0)
        }
    }
}

internal import Foundation

/// A report of the cost per operation at each size, with the exponents.
struct GrowthReport {
    let machine: Machine
    let results: GrowthResults
    let rounds: Int

    struct Record: Encodable {
        let machine: Machine
        let rounds: Int
        let costs: GrowthResults
        /// By growth and server: the exponents over all sizes and over the largest three.
        let exponents: [String: [String: [Double?]]]
    }

    private struct Exponents {
        let all, last: Double?

        init(_ points: [(size: Double, cost: Double)]) {
            all = growthExponent(points)
            last = growthExponent(points.suffix(3))
        }
    }

    private var growths: [Growth] { Growth.all.filter { results.costs[$0.name] != nil } }

    private func servers(in growth: Growth) -> [String] {
        Server.all.map(\.name).filter { results.costs[growth.name]?[$0] != nil }
    }

    var report: Report {
        var lines = ["How costs grow", ""] + machine.lines
        lines.append(
            "\(rounds) rounds, medians; the exponent is the slope of the cost's logarithm over the size's: 0 does not grow, 1 is linear"
        )
        var (charts, exponents): ([String: String], [String: [String: [Double?]]]) = ([:], [:])
        for growth in growths {
            lines += ["", "\(growth.title): server CPU of an operation, µs  (\(growth.name))", "", table(of: growth)]
            charts[growth.name] = chart(of: growth)
            for server in servers(in: growth) {
                let found = Exponents(results.points(of: server, in: growth))
                exponents[growth.name, default: [:]][server] = [found.all, found.last]
            }
        }
        let record = Record(machine: machine, rounds: rounds, costs: results, exponents: exponents)
        return Report(text: lines.joined(separator: "\n") + "\n", json: Report.encode(record), charts: charts)
    }

    private func table(of growth: Growth) -> String {
        var table = TextTable()
        table.add([growth.horizontal] + growth.sizes.map { "\($0)" } + ["exponent", "of the last three", "limit"])
        for server in servers(in: growth) {
            let points = results.points(of: server, in: growth)
            let cells = growth.sizes.map { size in points.first { $0.size == Double(size) }?.cost.short ?? "–" }
            let exponents = Exponents(points)
            let isOver = (exponents.last ?? 0) > growth.limit
            table.add(
                [server] + cells + [
                    exponents.all?.short ?? "–", exponents.last?.short ?? "–",
                    "\(growth.limit.short)\(isOver ? " exceeded" : "")",
                ])
        }
        return table.text
    }

    private func chart(of growth: Growth) -> String {
        let lines = servers(in: growth).map { server in
            let points = results.points(of: server, in: growth)
            return LineChart.Line(server: server, points: points, exponent: growthExponent(Array(points.suffix(3))))
        }
        return LineChart(
            title: growth.title, horizontal: growth.horizontal,
            vertical: "server CPU of an operation, µs; exponents of the last three sizes",
            lines: lines, footnote: "\(machine.date), \(machine.processor), OpenSSL \(machine.openSSL), \(rounds) rounds"
        ).svg
    }
}

internal import Foundation

/// A report of the goals and of all values in the matrix with their ratios.
struct MatrixReport {
    let machine: Machine
    let matrix: Matrix
    let isQuick: Bool

    private var results: Results { matrix.results }
    private var servers: [String] { matrix.servers.map(\.name) }

    struct Record: Encodable {
        let machine: Machine
        let rounds: Int
        let goals: [GoalRecord]
        let values: Results
    }

    struct GoalRecord: Encodable {
        let workload, metric, server, peer: String
        let bound: Double
        let ratio: Estimate?
        let verdict: Goal.Verdict
    }

    /// The goals for which this run has values.
    private var goals: [GoalRecord] {
        Goal.all.filter { goal in goal.isFor(openSSL: machine.openSSL) && matrix.workloads.contains { $0.name == goal.workload } }
            .map { goal in
                let ratio = results.ratio(goal.metric, of: goal.server, to: goal.peer, in: goal.workload)
                return GoalRecord(
                    workload: goal.workload, metric: goal.metric.rawValue, server: goal.server, peer: goal.peer,
                    bound: goal.bound,
                    ratio: ratio, verdict: goal.verdict(on: ratio))
            }
    }

    var report: Report {
        let goals = goals
        let record = Record(machine: machine, rounds: matrix.rounds, goals: goals, values: results)
        return Report(text: text(goals), json: Report.encode(record), charts: charts(goals))
    }

    private func text(_ goals: [GoalRecord]) -> String {
        let outer = Estimate.outliers(among: matrix.rounds)
        let interval = outer == 0 ? "lowest and highest" : "all but the \(outer) lowest and the \(outer) highest"
        var lines = ["AsyncSockets and its peers\(isQuick ? ", the rows with goals" : "")", ""] + machine.lines
        lines += [
            "\(count(matrix.rounds)), the servers interleaved; median [interval: \(interval) of the rounds]; ratios compare two runs of one round",
            "server on processor 0, load on processor 1 (`-on-2`: server on 0 and 1, load on 2 if there is one); TLS 1.3, TLS_AES_128_GCM_SHA256, X25519, ECDSA P-256, no tickets, except one in `resumed` (nio: always two)",
            "the processor time of all threads of the server is read from its clock (clock_getcpuclockid); instructions are not counted",
        ]
        if matrix.bench.spins { lines.append("the load never sleeps (--spin)") }
        if !goals.isEmpty { lines += ["", "Goals", "", goalTable(goals)] }
        for workload in matrix.workloads where results.values[workload.name] != nil {
            lines += ["", "\(workload.title)  (\(workload.name))", "", table(of: workload)]
        }
        if let upgrades = upgradeTable {
            lines += ["", "starttls: its server CPU relative to that of a handshake from the start", "", upgrades]
        }
        if !results.failures.isEmpty { lines += ["", "Failed runs, which are left out", ""] + results.failures }
        return lines.joined(separator: "\n") + "\n"
    }

    private func count(_ rounds: Int) -> String { rounds == 1 ? "1 round" : "\(rounds) rounds" }

    private var upgradeTable: String? {
        var table = TextTable()
        for server in servers {
            let ratio = results.ratio(.cpu, of: server, in: "starttls", to: server, in: "handshake")
            if let ratio { table.add(server, ratio.text) }
        }
        return table.isEmpty ? nil : table.text
    }

    private func goalTable(_ goals: [GoalRecord]) -> String {
        var table = TextTable(leftColumns: 4)
        table.add("workload", "figure", "server", "to", "goal", "ratio", "")
        for goal in goals {
            let metric = Metric(rawValue: goal.metric)
            let sign = metric?.isLowerBetter == true ? "≤" : "≥"
            table.add(
                goal.workload, metric?.title ?? goal.metric, goal.server, goal.peer,
                "\(sign) \(String(format: "%.2f", goal.bound))",
                goal.ratio?.text ?? "–", goal.verdict.rawValue)
        }
        return table.text
    }

    private func table(of workload: Workload) -> String {
        var table = TextTable(leftColumns: 2)
        table.add("", "", "", "to nio", "to c")
        for metric in workload.metrics {
            let measured = servers.filter { results.estimate(metric, of: $0, in: workload.name) != nil }
            for (index, server) in measured.enumerated() {
                table.add([index == 0 ? metric.title : "", server] + cells(metric, of: server, in: workload))
            }
        }
        return table.text
    }

    private func cells(_ metric: Metric, of server: String, in workload: Workload) -> [String] {
        let figure = results.estimate(metric, of: server, in: workload.name)
        if metric == .threads { return [figure.map { String(format: "%.0f", $0.median) } ?? "–"] }
        let ratios = [Server.nio, Server.floor].map { peer -> String in
            guard server != peer else { return "" }
            return results.ratio(metric, of: server, to: peer, in: workload.name)?.text ?? "–"
        }
        return [figure?.text ?? "–"] + ratios
    }

    // MARK: - Charts

    private func charts(_ goals: [GoalRecord]) -> [String: String] {
        let footnote = "\(machine.date), \(machine.processor), OpenSSL \(machine.openSSL), \(count(matrix.rounds))"
        var charts: [String: String] = [:]
        let rows = goals.compactMap { goal -> GoalChart.Row? in
            guard let ratio = goal.ratio, let metric = Metric(rawValue: goal.metric) else { return nil }
            let label = "\(goal.workload), \(metric.title): \(goal.server) to \(goal.peer)"
            return GoalChart.Row(
                label: label, ratio: ratio, bound: goal.bound, isLowerBetter: metric.isLowerBetter, verdict: goal.verdict)
        }
        if !rows.isEmpty { charts["goals"] = GoalChart(title: "Goals", rows: rows, footnote: footnote).svg }
        for metric in [Metric.cpu, .bytesPerCPU, .p50, .memory] {
            let groups = matrix.workloads.filter { $0.metrics.contains(metric) }.compactMap { group(metric, of: $0) }
            guard !groups.isEmpty else { continue }
            let title =
                "\(metric.title), \(metric.isLowerBetter ? "less" : "more") is better; bars are relative to the longest of their group"
            charts[metric.rawValue] = BarChart(title: title, servers: servers, groups: groups, footnote: footnote).svg
        }
        return charts
    }

    private func group(_ metric: Metric, of workload: Workload) -> BarChart.Group? {
        let bars = servers.compactMap { server in
            results.estimate(metric, of: server, in: workload.name).map { BarChart.Bar(server: server, value: $0) }
        }
        return bars.isEmpty ? nil : BarChart.Group(title: workload.title, bars: bars)
    }
}

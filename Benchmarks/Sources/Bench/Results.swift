/// The measured values by workload, server and metric, in the order of the rounds.
struct Results: Codable, Sendable {
    /// By workload, server and metric. The value is nil if the run in that round failed.
    private(set) var values: [String: [String: [String: [Double?]]]] = [:]
    /// The errors of failed runs.
    private(set) var failures: [String] = []

    mutating func add(_ measurement: Measurement, of server: String, in workload: String, round: Int) {
        for (metric, value) in measurement {
            var rounds = values[workload]?[server]?[metric.rawValue] ?? []
            while rounds.count < round { rounds.append(nil) }
            values[workload, default: [:]][server, default: [:]][metric.rawValue] = rounds + [value]
        }
    }

    mutating func addFailure(_ failure: String) {
        failures.append(failure)
    }

    private func rounds(_ metric: Metric, of server: String, in workload: String) -> [Double?] {
        values[workload]?[server]?[metric.rawValue] ?? []
    }

    func estimate(_ metric: Metric, of server: String, in workload: String) -> Estimate? {
        Estimate(rounds(metric, of: server, in: workload).compactMap { $0 })
    }

    /// The ratio of a server's value to a peer's, over the rounds in which both runs succeeded.
    func ratio(_ metric: Metric, of server: String, to peer: String, in workload: String) -> Estimate? {
        ratio(metric, of: server, in: workload, to: peer, in: workload)
    }

    /// The same ratio between two workloads.
    func ratio(
        _ metric: Metric, of server: String, in workload: String, to peer: String, in other: String
    ) -> Estimate? {
        Estimate.ratio(rounds(metric, of: server, in: workload), rounds(metric, of: peer, in: other))
    }
}

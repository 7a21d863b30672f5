/// What was measured: for each workload and server the values of each metric, in the order of the rounds.
struct Results: Codable, Sendable {
    /// By workload, server and metric. Nil: the run of that round has failed.
    private(set) var values: [String: [String: [String: [Double?]]]] = [:]
    /// What went wrong in runs that have failed.
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

    /// How much of the peer's figure a server's is: of the rounds in which both runs were good.
    func ratio(_ metric: Metric, of server: String, to peer: String, in workload: String) -> Estimate? {
        ratio(metric, of: server, in: workload, to: peer, in: workload)
    }

    /// The same between two workloads.
    func ratio(
        _ metric: Metric, of server: String, in workload: String, to peer: String, in other: String
    ) -> Estimate? {
        Estimate.ratio(rounds(metric, of: server, in: workload), rounds(metric, of: peer, in: other))
    }
}

/// What was measured: for each workload and server the values of each metric, in the order of the rounds.
struct Results: Codable, Sendable {
    /// By workload, server and metric.
    private(set) var values: [String: [String: [String: [Double]]]] = [:]

    mutating func add(_ measurement: Measurement, of server: String, in workload: String) {
        for (metric, value) in measurement { values[workload, default: [:]][server, default: [:]][metric.rawValue, default: []].append(value) }
    }

    func rounds(_ metric: Metric, of server: String, in workload: String) -> [Double] {
        values[workload]?[server]?[metric.rawValue] ?? []
    }

    func estimate(_ metric: Metric, of server: String, in workload: String) -> Estimate? {
        Estimate(rounds(metric, of: server, in: workload))
    }

    /// How much of the peer's figure a server's is.
    func ratio(_ metric: Metric, of server: String, to peer: String, in workload: String) -> Estimate? {
        Estimate.ratio(rounds(metric, of: server, in: workload), rounds(metric, of: peer, in: workload))
    }
}

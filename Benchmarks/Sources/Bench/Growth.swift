internal import Foundation

/// A workload at several sizes, which shows how its cost grows.
struct Growth: Sendable {
    let name: String
    let title: String
    let horizontal: String
    let sizes: [Int]
    /// The maximum exponent of an operation's cost.
    let limit: Double
    let workload: @Sendable (Int) -> Workload

    static let all: [Growth] = [false, true].flatMap { isSecure -> [Growth] in
        let (kind, title) = (isSecure ? "tls" : "plain", isSecure ? "TLS" : "plain")
        return [
            Growth(
                name: "\(kind)-connections", title: "\(title) echo of 64 B", horizontal: "connections",
                sizes: [1, 10, 100, 1000, 10_000], limit: 0.25
            ) { .echo(size: 64, connections: $0, isSecure: isSecure) },
            // With twenty times as many connections, the cost may increase by half.
            Growth(
                name: "\(kind)-ends", title: "\(title): accept, one byte echoed, close", horizontal: "connections open",
                sizes: [1000, 5000, 19_900], limit: 0.135
            ) { held in
                Workload(
                    name: "", title: "", mode: .echo, isSecure: isSecure,
                    load: ["--mode", "connect", "--connections", "32", "--held", "\(held)"], metrics: [.cpu])
            },
            Growth(
                name: "\(kind)-messages", title: "\(title) echo, 1 connection", horizontal: "bytes of a message",
                sizes: powers(to: 1 << 24), limit: 1.1
            ) { .echo(size: $0, connections: 1, isSecure: isSecure) },
            Growth(
                name: "\(kind)-writes", title: "\(title): writes of the server", horizontal: "bytes of a write",
                sizes: powers(to: 1 << 24), limit: 1.1
            ) { size in
                // Limits a transfer to about ten thousand writes, so that transfers with small writes do not
                // take long.
                let total = max(1 << 16, min(1 << 26, size * 16_384))
                return Workload(
                    name: "", title: "", mode: .source, isSecure: isSecure,
                    load: ["--mode", "source", "--size", "\(max(total, size))", "--chunk", "\(size)"], metrics: [.cpu])
            },
            Growth(
                name: "\(kind)-delimiter", title: "\(title): reading to a delimiter, in pieces of 256 B",
                horizontal: "bytes of a line",
                sizes: powers(from: 1024, to: 1 << 24), limit: 1.1
            ) { size in
                Workload(
                    name: "", title: "", mode: .count, isSecure: isSecure,
                    load: ["--mode", "count", "--size", "\(size)", "--piece", "256"], metrics: [.cpu])
            },
        ]
    }

    private static func powers(from first: Int = 1, to last: Int) -> [Int] {
        Array(sequence(first: first) { $0 < last ? $0 * 16 : nil }.prefix { $0 <= last })
    }

    /// The server's CPU time per operation at `size`, in µs. A transfer has many operations.
    func cost(_ measurement: Measurement, at size: Int) -> Double? {
        guard workload(size).mode == .source else { return measurement[.cpu] }
        return measurement[.bytesPerCPU].map { Double(size) / $0 / 1000 }
    }
}

/// The cost per operation for each server and size, in µs: the median over the rounds.
struct GrowthResults: Codable {
    /// By growth, server and size.
    var costs: [String: [String: [Int: [Double]]]] = [:]

    func points(of server: String, in growth: Growth) -> [(size: Double, cost: Double)] {
        growth.sizes.compactMap { size in
            Estimate(costs[growth.name]?[server]?[size] ?? []).map { (Double(size), $0.median) }
        }
    }
}

/// Measures each growth, alternating between the servers in each round.
struct GrowthRun {
    let bench: Bench
    let servers: [Server]
    let rounds: Int
    /// Prefixes of names. Empty means all.
    let filter: [String]

    func run() throws -> GrowthResults {
        var results = GrowthResults()
        let chosen = Growth.all.filter { growth in filter.isEmpty || filter.contains { growth.name.hasPrefix($0) } }
        if chosen.isEmpty { throw BenchError("no growth starts with \(filter.joined(separator: " or "))") }
        for round in 0..<rounds {
            for growth in chosen {
                for size in growth.sizes {
                    let workload = growth.workload(size)
                    let able = servers.filter { $0.can(workload) }
                    for turn in able.indices {
                        let server = able[(turn + round) % able.count]
                        progress("round \(round + 1) of \(rounds): \(growth.name), \(size), \(server.name)")
                        let measurement = try Trial(bench: bench, workload: workload, server: server).run()
                        guard let cost = growth.cost(measurement, at: size) else { continue }
                        results.costs[growth.name, default: [:]][server.name, default: [:]][size, default: []].append(cost)
                    }
                }
            }
        }
        return results
    }
}

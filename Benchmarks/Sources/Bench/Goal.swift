internal import Foundation

/// A bound for the ratio between one of our servers and a peer, which may also be one of our servers.
struct Goal: Sendable {
    let workload: String
    let metric: Metric
    var server = Server.ours
    let peer: String
    /// The maximum ratio if smaller values are better, otherwise the minimum ratio.
    let bound: Double
    /// The range of OpenSSL versions that the goal applies to; the upper bound is exclusive, and nil means no
    /// limit.
    var sinceOpenSSL: String?
    var beforeOpenSSL: String?

    enum Verdict: String, Codable {
        /// The whole interval is within the bound.
        case met
        /// The interval contains the bound. Run more rounds or use a quieter machine.
        case undecided
        /// The whole interval is outside the bound.
        case missed
        /// One of the two servers was not measured.
        case unmeasured
    }

    func verdict(on ratio: Estimate?) -> Verdict {
        guard let ratio else { return .unmeasured }
        let (best, worst) = metric.isLowerBetter ? (ratio.low, ratio.high) : (ratio.high, ratio.low)
        func keeps(_ value: Double) -> Bool { metric.isLowerBetter ? value <= bound : value >= bound }
        return keeps(worst) ? .met : keeps(best) ? .undecided : .missed
    }

    func isFor(openSSL version: String) -> Bool {
        if let sinceOpenSSL, version.compare(sinceOpenSSL, options: .numeric) == .orderedAscending { return false }
        if let beforeOpenSSL, version.compare(beforeOpenSSL, options: .numeric) != .orderedAscending { return false }
        return true
    }
}

extension Goal {
    private static func pair(
        _ workload: String, _ metric: Metric, server: String = Server.ours, nio: Double, floor: Double?
    ) -> [Goal] {
        [Goal(workload: workload, metric: metric, server: server, peer: Server.nio, bound: nio)]
            + (floor.map { [Goal(workload: workload, metric: metric, server: server, peer: Server.floor, bound: $0)] } ?? [])
    }

    /// Like BoringSSL, OpenSSL 3.5 uses wide AES-GCM instructions, and 3.0 does not. The bound relative to
    /// SwiftNIO therefore depends on the version.
    private static func bulk(_ workload: String, older: Double) -> [Goal] {
        [
            Goal(workload: workload, metric: .bytesPerCPU, peer: Server.nio, bound: older, beforeOpenSSL: "3.5"),
            Goal(workload: workload, metric: .bytesPerCPU, peer: Server.nio, bound: 1.2, sinceOpenSSL: "3.5"),
            Goal(workload: workload, metric: .bytesPerCPU, peer: Server.floor, bound: 0.95),
        ]
    }

    /// The goals for one task per connection. It uses the same event loop as the inline delegate.
    private static let tasks: [Goal] =
        tasks("plain-echo-64B-64", .cpu, [Server.nioWithTasks: 0.45, Server.nioWithTasksOnLoop: 0.50, Server.nio: 0.85])
        + tasks("tls-echo-64B-64", .cpu, [Server.nioWithTasks: 0.55, Server.nioWithTasksOnLoop: 0.60, Server.nio: 0.95])
        + tasks("plain-echo-64B-1", .p50, [Server.nio: 1])
        + tasks("tls-echo-64B-1", .p50, [Server.nio: 1])
        + ["plain-lines", "tls-lines"].flatMap { workload in
            pair(workload, .cpu, nio: 1, floor: 4)
                + tasks(workload, .cpu, [Server.ours: 1.2, Server.nio: 1, Server.nioWithTasks: 0.5, Server.floor: 4])
        }
        + tasks("dtls-memory", .memory, [Server.floor: 1.08])

    private static func tasks(_ workload: String, _ metric: Metric, _ bounds: KeyValuePairs<String, Double>) -> [Goal] {
        bounds.map { Goal(workload: workload, metric: metric, server: Server.oursWithTasks, peer: $0.key, bound: $0.value) }
    }

    /// The goals for UDP are 0.8 times SwiftNIO's CPU time and, for bulk transfers, 1.25 times the floor's
    /// instructions.
    private static let datagrams: [Goal] =
        ["udp-echo-64B-64", "udp-echo-1200B-64", "udp-receive", "udp-send"].map { workload in
            Goal(workload: workload, metric: .cpu, peer: Server.nio, bound: 0.8)
        } + tasks("dtls-echo", .cpu, [Server.floor: 1.15])

    /// With a thousand connections at the same rate, our latency is at most SwiftNIO's.
    private static let latencies: [Goal] = ["plain", "tls"].flatMap { kind in
        [25, 50, 75].flatMap { percent in
            [Metric.p99, .p999].map { metric in
                Goal(workload: "\(kind)-rate-\(percent)-1000", metric: metric, peer: Server.nio, bound: 1)
            }
        }
    }

    /// All goals.
    static let all: [Goal] =
        pair("plain-echo-64B-64", .cpu, nio: 0.85, floor: 1.15)
        + pair("plain-echo-64B-64", .rate, nio: 1.15, floor: 0.85)
        + pair("tls-echo-64B-64", .cpu, nio: 0.92, floor: 1.15)
        + pair("tls-echo-64B-64", .rate, nio: 1.08, floor: 0.85)
        + pair("plain-echo-64B-64", .cpu, server: Server.oursWithQueue, nio: 1.30, floor: 1.75)
        + pair("tls-echo-64B-64", .cpu, server: Server.oursWithQueue, nio: 1.35, floor: 1.70)
        + pair("plain-echo-64B-1", .p50, nio: 1.10, floor: 1.10)
        + pair("plain-echo-64B-1", .p50, server: Server.oursWithQueue, nio: 1.5, floor: 1.6)
        + pair("accept", .cpu, nio: 0.85, floor: 1.10)
        + pair("handshake", .cpu, nio: 1.45, floor: 1.06)
        + pair("resumed", .cpu, nio: 1.40, floor: 1.08)
        + bulk("tls-receive", older: 0.78)
        + bulk("tls-send", older: 0.85)
        + pair("plain-receive", .bytesPerCPU, nio: 1.1, floor: 0.85)
        + pair("plain-memory", .memory, nio: 0.25, floor: nil)
        + pair("tls-memory", .memory, nio: 0.70, floor: 1.08)
        + latencies
        + datagrams
        + tasks

    /// The servers named by goals, and the floor with tickets, which explains the goals for handshakes.
    static let servers = Set(all.flatMap { [$0.server, $0.peer] }).union([Server.floorWithTickets])
}

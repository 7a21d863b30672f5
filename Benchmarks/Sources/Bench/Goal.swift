internal import Foundation

/// A bound for the ratio between one of our servers and a peer, which may also be one of our servers.
struct Goal: Sendable {
    let workload: String
    let metric: Metric
    var server = Server.ours
    let peer: String
    /// The maximum ratio if smaller values are better, otherwise the minimum ratio.
    let bound: Double
    /// The oldest version of OpenSSL that the goal applies to; nil means all versions.
    var sinceOpenSSL: String?

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
        guard let sinceOpenSSL else { return true }
        return version.compare(sinceOpenSSL, options: .numeric) != .orderedAscending
    }
}

extension Goal {
    private static func pair(
        _ workload: String, _ metric: Metric, server: String = Server.ours, nio: Double, floor: Double?
    ) -> [Goal] {
        [Goal(workload: workload, metric: metric, server: server, peer: Server.nio, bound: nio)]
            + (floor.map { [Goal(workload: workload, metric: metric, server: server, peer: Server.floor, bound: $0)] } ?? [])
    }

    /// Like BoringSSL, OpenSSL 3.5 uses wide AES-GCM instructions, and 3.0 does not. Therefore, only 3.5 has
    /// a goal relative to SwiftNIO.
    private static func bulk(_ workload: String) -> [Goal] {
        [
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

    /// Where the kernel's share is so large that even the floor takes more than 0.8 of SwiftNIO's CPU time,
    /// the goal is a ratio to the floor.
    private static let datagrams: [Goal] =
        ["udp-echo-64B-64", "udp-echo-1200B-64", "udp-receive"].map { workload in
            Goal(workload: workload, metric: .cpu, peer: Server.floor, bound: 1.25)
        }
        + [Goal(workload: "udp-send", metric: .cpu, peer: Server.nio, bound: 0.8)]
        + tasks("udp-echo-64B-64", .cpu, [Server.ours: 1.1]) + tasks("dtls-echo", .cpu, [Server.floor: 1.15])
        + tasks("dtls-handshake", .cpu, [Server.floor: 1.2])

    /// With a thousand connections at the same rate, our median latency is at most SwiftNIO's. High
    /// percentiles vary by a factor of ten between rounds, so they have no goals.
    private static let latencies: [Goal] = ["plain", "tls"].map { kind in
        Goal(workload: "\(kind)-rate-50-1000", metric: .p50, peer: Server.nio, bound: 1)
    }

    /// The goals relative to Go and tokio.
    private static let otherLanguages: [Goal] =
        ["plain-lines", "tls-lines"].flatMap { workload in
            [Goal(workload: workload, metric: .cpu, peer: Server.go, bound: 1)] + tasks(workload, .cpu, [Server.go: 1.1])
        }
        + ["plain-send-200B", "tls-send-200B"].map { Goal(workload: $0, metric: .bytesPerCPU, peer: Server.go, bound: 0.9) }
        + [Server.ours, Server.oursWithTasks].flatMap { server in
            [
                Goal(workload: "plain-echo-64B-64", metric: .cpu, server: server, peer: Server.go, bound: 1),
                Goal(workload: "plain-echo-64B-64", metric: .cpu, server: server, peer: Server.tokio, bound: 1.15),
            ]
        }

    /// All goals.
    static let all: [Goal] =
        pair("plain-echo-64B-64", .cpu, nio: 0.85, floor: 1.15)
        + pair("tls-echo-64B-64", .cpu, nio: 0.92, floor: 1.15)
        + pair("plain-echo-64B-64", .cpu, server: Server.oursWithQueue, nio: 1.30, floor: 1.75)
        + pair("tls-echo-64B-64", .cpu, server: Server.oursWithQueue, nio: 1.35, floor: 1.70)
        + pair("plain-echo-64B-1", .p50, nio: 1.10, floor: 1.10)
        + pair("plain-echo-64B-1", .p50, server: Server.oursWithQueue, nio: 1.5, floor: 1.6)
        + pair("accept", .cpu, nio: 0.85, floor: 1.10) + tasks("accept", .cpu, [Server.ours: 1.4])
        + pair("handshake", .cpu, nio: 1.45, floor: 1.06)
        + pair("resumed", .cpu, nio: 1.40, floor: 1.08)
        + bulk("tls-receive")
        + bulk("tls-send")
        + pair("plain-receive", .bytesPerCPU, nio: 1.1, floor: 0.85)
        + pair("plain-memory", .memory, nio: 0.25, floor: nil)
        + pair("tls-memory", .memory, nio: 0.70, floor: 1.08)
        + latencies
        + datagrams
        + tasks + otherLanguages

    /// The servers named by goals, and the floor with tickets, which explains the goals for handshakes.
    static let servers = Set(all.flatMap { [$0.server, $0.peer] }).union([Server.floorWithTickets])
}

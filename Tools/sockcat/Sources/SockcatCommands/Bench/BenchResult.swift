internal import FoundationEssentials
internal import Glibc

/// The measurements of the workers of a run.
struct BenchResult: Sendable, Equatable {
    var latencies = LatencyHistogram()
    var bytesSent = 0
    var bytesReceived = 0
    /// The handshakes that resumed a session.
    var resumed = 0
    /// The messages of failures, and how often each occurred.
    var failures: [String: Int] = [:]
    var elapsed = Duration.zero

    mutating func merge(_ other: BenchResult) {
        latencies.merge(other.latencies)
        bytesSent += other.bytesSent
        bytesReceived += other.bytesReceived
        resumed += other.resumed
        failures.merge(other.failures, uniquingKeysWith: +)
        elapsed = max(elapsed, other.elapsed)
    }

    var failureCount: Int { failures.values.reduce(0, +) }

    func rate(_ count: Int) -> Double { elapsed > .zero ? Double(count) / elapsed.inSeconds : 0 }
}

/// The JSON object that `--json` prints for a run. Members may be added, but are not renamed or removed.
/// Times are in seconds.
struct BenchReport: Codable, Equatable, Sendable {
    var target: String
    var measured: String
    var connections: Int
    var seconds: Double
    var count: Int
    var perSecond: Double
    var failures: Int
    var resumed: Int?
    var bytesSent: Int
    var bytesReceived: Int
    var bytesSentPerSecond: Double
    var bytesReceivedPerSecond: Double
    var latency: Latency
    var histogram: [Bucket]

    struct Latency: Codable, Equatable, Sendable {
        var minimum, mean, p50, p90, p99, p999, maximum: Double
    }

    struct Bucket: Codable, Equatable, Sendable {
        var upTo: Double
        var count: Int
    }

    init(_ result: BenchResult, target: String, measured: BenchMeasurement, connections: Int) {
        let latencies = result.latencies
        (self.target, self.measured, self.connections) = (target, measured.rawValue, connections)
        seconds = result.elapsed.inSeconds
        count = latencies.count
        perSecond = result.rate(latencies.count)
        failures = result.failureCount
        resumed = measured == .resumptions ? result.resumed : nil
        (bytesSent, bytesReceived) = (result.bytesSent, result.bytesReceived)
        bytesSentPerSecond = result.rate(result.bytesSent)
        bytesReceivedPerSecond = result.rate(result.bytesReceived)
        latency = Latency(
            minimum: latencies.minimum.inSeconds, mean: latencies.mean.inSeconds,
            p50: latencies.percentile(50).inSeconds, p90: latencies.percentile(90).inSeconds,
            p99: latencies.percentile(99).inSeconds, p999: latencies.percentile(99.9).inSeconds,
            maximum: latencies.maximum.inSeconds)
        histogram = latencies.rows.map { Bucket(upTo: $0.upperBound.inSeconds, count: $0.count) }
    }
}

/// The kind of operation that a run measures.
enum BenchMeasurement: String, Sendable {
    case handshakes, resumptions, requests, blocks

    /// The plural of the operation, for people.
    var unit: String {
        switch self {
        case .handshakes: "handshakes"
        case .resumptions: "resumed handshakes"
        case .requests: "requests"
        case .blocks: "blocks"
        }
    }
}

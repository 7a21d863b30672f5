/// A measured property of a server.
enum Metric: String, Codable, Sendable, CaseIterable {
    case cpu, rate, bytesPerCPU, speed, p50, p99, p999, memory, held, threads

    var title: String {
        switch self {
        case .cpu: "server CPU, µs/op"
        case .rate: "thousand op/s"
        case .bytesPerCPU: "GB per CPU-second"
        case .speed: "GB/s"
        case .p50: "p50, µs"
        case .p99: "p99, µs"
        case .p999: "p99.9, µs"
        case .memory: "KiB per connection"
        case .held: "MiB beyond the data"
        case .threads: "threads"
        }
    }

    /// Whether smaller values are better.
    var isLowerBetter: Bool {
        switch self {
        case .cpu, .p50, .p99, .p999, .memory, .held, .threads: true
        case .rate, .bytesPerCPU, .speed: false
        }
    }
}

/// The values from one run of one server.
typealias Measurement = [Metric: Double]

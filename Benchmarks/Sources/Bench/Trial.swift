internal import Foundation

/// The programs and files for a run, and its duration.
struct Bench: Sendable {
    /// The programs built by SwiftPM and by the Makefile.
    let swiftPrograms: URL
    let nativePrograms: URL
    let certificate: URL
    let key: URL
    /// The duration of the warm-up and of the measurement in seconds.
    var warm = 0.2
    var seconds = 0.6
    /// The load generator never sleeps, so that the server spends no system time on waking it.
    var spins = false

    func file(of server: Server) -> URL {
        (server.isNative ? nativePrograms : swiftPrograms).appending(path: server.program)
    }

    func has(_ server: Server) -> Bool {
        FileManager.default.isExecutableFile(atPath: file(of: server).path)
    }
}

/// One run of one server under one load. The server runs on the first processors, and the load generator on
/// the next one or, on a machine without a next one, on the last processor.
struct Trial {
    let bench: Bench
    let workload: Workload
    let server: Server
    /// Messages per second in an open loop.
    var rate: Double?

    var serverProcessors: ClosedRange<Int> { 0...workload.processors - 1 }

    var loadProcessor: Int { min(workload.processors, ProcessInfo.processInfo.processorCount - 1) }

    var serverArguments: [String] {
        let tls = workload.isSecure ? ["--tls", bench.certificate.path, bench.key.path] : []
        return ["--mode", workload.mode.rawValue] + server.arguments + server.ticketArguments(workload.tickets)
            + server.loopArguments(workload.processors) + tls
    }

    func run() throws -> Measurement {
        let program = try Program(bench.file(of: server), serverArguments, processors: serverProcessors)
        defer { program.stop() }
        let port = try program.readLine(within: 20)
        let shared = [
            "--port", port, "--server-pid", "\(program.id)", "--warm", "\(bench.warm)", "--seconds", "\(bench.seconds)",
        ]
        let pace = (rate.map { ["--rate", "\($0)"] } ?? []) + (bench.spins ? ["--spin"] : [])
        let load = try Program(
            bench.nativePrograms.appending(path: "load"), workload.loadArguments + shared + pace,
            processors: loadProcessor...loadProcessor)
        defer { load.stop() }
        if case .idle = workload.pace { return try measureMemory(of: program, under: load) }
        var held: Double?
        if case .watched(let size) = workload.pace { held = try watchMemory(of: program, under: load, size: size) }
        let line = try load.readLine(within: 120)
        var measurement = try JSONDecoder().decode(LoadResult.self, from: Data(line.utf8)).measurement
        measurement[.held] = held
        measurement[.threads] = try program.status("Threads")
        return measurement
    }

    /// The server's maximum memory use during the measurement in MiB, minus `size` bytes.
    private func watchMemory(of program: Program, under load: Program, size: Int) throws -> Double {
        _ = try load.readLine(within: 120)
        var most = 0.0
        for _ in 0..<10_000 where !load.hasLine(within: 0.01) { most = max(most, try program.status("VmRSS")) }
        return most / 1024 - Double(size) / 1_048_576
    }

    private func measureMemory(of program: Program, under load: Program) throws -> Measurement {
        var points: [(connections: Double, kibibytes: Double)] = []
        for _ in 0..<2 {
            let step = try JSONDecoder().decode(LoadResult.self, from: Data(try load.readLine(within: 120).utf8))
            points.append((step.operations, try program.status("VmRSS")))
            try load.send("")
        }
        let slope = (points[1].kibibytes - points[0].kibibytes) / (points[1].connections - points[0].connections)
        return [.memory: slope, .threads: try program.status("Threads")]
    }
}

/// The load generator's output.
struct LoadResult: Decodable {
    let operations: Double
    var bytes: Double?
    var elapsed: Double?
    var serverCPU: Double?
    var p50: Double?
    var p99: Double?
    var p999: Double?

    var measurement: Measurement {
        var result: Measurement = [:]
        guard let elapsed, let serverCPU, let bytes else { return result }
        result[.cpu] = serverCPU / operations / 1000
        result[.rate] = operations / elapsed * 1e6
        if bytes > 0 && serverCPU > 0 {
            result[.bytesPerCPU] = bytes / serverCPU
            result[.speed] = bytes / elapsed
        }
        for (metric, value) in [(Metric.p50, p50), (.p99, p99), (.p999, p999)] { result[metric] = value.map { $0 / 1000 } }
        return result
    }
}

internal import Foundation

/// Runs workloads against servers in rounds. In each round, every server runs a workload before the next
/// workload starts, and the order of the servers rotates. Disturbances of the machine therefore affect all
/// servers equally.
struct Matrix {
    let bench: Bench
    let workloads: [Workload]
    let servers: [Server]
    let rounds: Int
    private(set) var results = Results()

    init(bench: Bench, workloads: [Workload], servers: [Server], rounds: Int) {
        (self.bench, self.workloads, self.servers, self.rounds) = (bench, workloads, servers, rounds)
    }

    mutating func run() throws {
        // The rate of an open loop is a fraction of the closed loop's throughput over all rounds.
        let passes = [workloads.filter { !$0.isPaced }, workloads.filter(\.isPaced)].filter { !$0.isEmpty }
        for pass in passes {
            for round in 0..<rounds {
                for workload in pass { try run(workload, round: round) }
            }
        }
    }

    private mutating func run(_ workload: Workload, round: Int) throws {
        let able = servers.filter { $0.can(workload) }
        guard !able.isEmpty else { return }
        let rate = try rate(of: workload)
        for turn in able.indices {
            let server = able[(turn + round) % able.count]
            progress("round \(round + 1) of \(rounds): \(workload.name), \(server.name)")
            do {
                let measurement = try Trial(bench: bench, workload: workload, server: server, rate: rate).run()
                results.add(measurement, of: server.name, in: workload.name, round: round)
            } catch {
                let failure = "round \(round + 1), \(workload.name), \(server.name): \(error)"
                progress(failure)
                results.addFailure(failure)
                // A run that cannot sustain a rate is a valid result, but many failed runs indicate a defect.
                if results.failures.count >= 10 { throw BenchError("too many runs failed") }
            }
        }
    }

    private mutating func rate(of workload: Workload) throws -> Double? {
        guard case .part(let part, let name) = workload.pace else { return nil }
        guard let closed = Workload.all.first(where: { $0.name == name }) else {
            throw BenchError("no workload is named \(name)")
        }
        if results.values[name] == nil { try run(closed, round: 0) }
        let rates = servers.filter { $0.can(workload) }.compactMap { results.estimate(.rate, of: $0.name, in: name)?.median }
        guard let slowest = rates.min() else { throw BenchError("\(name) has no rates") }
        return part * slowest * 1000
    }
}

extension Workload {
    fileprivate var isPaced: Bool {
        if case .part = pace { true } else { false }
    }
}

/// Prints progress to standard error.
func progress(_ text: String) {
    FileHandle.standardError.write(Data((text + "\n").utf8))
}

internal import ArgumentParser
internal import Foundation

/// Compares this package with its peers.
@main
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench", abstract: "Compares this package with SwiftNIO, and with C on epoll and OpenSSL.",
        discussion: "Without a filter the results go to Documentation/Benchmarks; see Benchmarks/README.md.")

    @Flag(help: "Measures only the workloads with goals, and their servers, or the servers given with --server.")
    var quick = false
    @Flag(help: "Measures how costs grow with connections and message sizes, instead of the matrix.")
    var growth = false
    @Flag(help: "Counts user-space instructions with callgrind, instead of measuring time.")
    var instructions = false
    @Option(help: "A server to measure; may be given several times.")
    var server: [String] = []
    @Option(help: "A workload to measure, or a prefix of workload names; may be given several times.")
    var workload: [String] = []
    @Option(help: "Rounds; the default is 5, and 3 for --growth.")
    var rounds: Int?
    @Option(help: "The duration of each measurement in seconds.")
    var seconds: Double?
    @Flag(help: "Makes the load generator poll instead of sleep, so that no server spends time on waking it.")
    var spin = false
    @Option(help: "The folder for the results, including those of a filtered run.")
    var output: String?
    @Flag(help: "Lists servers and workloads.")
    var list = false
    @Option(help: .hidden)
    var root = "."
    @Option(help: .hidden)
    var swiftPrograms = "."
    @Option(help: .hidden)
    var nativePrograms = "."

    func validate() throws {
        if let rounds, rounds < 1 { throw ValidationError("--rounds must be at least 1") }
        if let seconds, !(0.05...60).contains(seconds) { throw ValidationError("--seconds must be from 0.05 to 60") }
    }

    func run() throws {
        if list { return printList() }
        let folder = FileManager.default.temporaryDirectory.appending(path: "bench-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let bench = try makeBench(in: folder)
        let servers = try chooseServers(bench)
        let began = Date()
        let machine = Machine.current()
        let report: Report
        if instructions {
            report =
                InstructionReport(
                    machine: machine, rows: try InstructionRun(bench: bench, servers: servers, filter: workload).run()
                ).report
        } else if growth {
            let rounds = rounds ?? 3
            let results = try GrowthRun(bench: bench, servers: servers, rounds: rounds, filter: workload).run()
            report = GrowthReport(machine: machine, results: results, rounds: rounds).report
        } else {
            var matrix = Matrix(bench: bench, workloads: try chooseWorkloads(), servers: servers, rounds: rounds ?? 5)
            try matrix.run()
            report = MatrixReport(machine: machine, matrix: matrix, isQuick: quick).report
        }
        FileHandle.standardOutput.write(Data(report.text.utf8))
        progress("took \(Int(Date().timeIntervalSince(began))) s")
        try write(report, suffix: machine.openSSL.hasPrefix("3.0.") ? "" : "-openssl-\(machine.openSSL)")
    }

    private func makeBench(in folder: URL) throws -> Bench {
        let (certificate, key) = (folder.appending(path: "certificate.pem"), folder.appending(path: "key.pem"))
        try Machine.run(
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-keyout", key.path, "-out", certificate.path)
        var bench = Bench(
            swiftPrograms: URL(filePath: swiftPrograms), nativePrograms: URL(filePath: nativePrograms), certificate: certificate,
            key: key)
        bench.seconds = seconds ?? bench.seconds
        bench.spins = spin
        return bench
    }

    private func chooseServers(_ bench: Bench) throws -> [Server] {
        let unknown = server.filter { name in !Server.all.contains { $0.name == name } }
        if !unknown.isEmpty { throw ValidationError("no server is named \(unknown.joined(separator: ", ")): see --list") }
        return Server.all.filter { candidate in
            let isWanted =
                server.isEmpty
                ? !(quick || growth || instructions) || Goal.servers.contains(candidate.name)
                    || instructions && candidate.isForCounting : server.contains(candidate.name)
            if isWanted && !bench.has(candidate) { progress("\(candidate.name) was not built: skipping it") }
            return isWanted && bench.has(candidate)
        }
    }

    private func chooseWorkloads() throws -> [Workload] {
        let withGoals = Set(Goal.all.map(\.workload))
        let chosen = Workload.all.filter { candidate in
            candidate.processors <= ProcessInfo.processInfo.processorCount && (!quick || withGoals.contains(candidate.name))
                && (workload.isEmpty || workload.contains { candidate.name.hasPrefix($0) })
        }
        if chosen.isEmpty { throw ValidationError("no workload starts with \(workload.joined(separator: " or ")): see --list") }
        return quick && server.isEmpty ? chosen.map(\.withServersOfGoals) : chosen
    }

    private func write(_ report: Report, suffix: String) throws {
        let isFiltered = !server.isEmpty || !workload.isEmpty
        guard let folder = output ?? (isFiltered ? nil : "\(root)/Documentation/Benchmarks") else { return }
        let name = (instructions ? "instructions" : growth ? "growth" : quick ? "quick" : "full") + suffix
        try report.write(to: URL(filePath: folder), named: name)
        progress("written to \(folder)/\(name)*")
    }

    private func printList() {
        print("servers:")
        for server in Server.all { print("  \(server.name)") }
        print("workloads:")
        for workload in Workload.all {
            print("  \(workload.name.padding(toLength: 22, withPad: " ", startingAt: 0)) \(workload.title)")
        }
    }
}

extension Workload {
    /// Restricts the workload to SwiftNIO, the floor, and the servers named by goals.
    var withServersOfGoals: Workload {
        var result = self
        let named = Goal.all.filter { $0.workload == name }.flatMap { [$0.server, $0.peer] }
        let others = [Server.nio, Server.floor].filter { servers?.contains($0) ?? true }
        result.servers = named + others + (servers ?? []).filter { $0 == Server.floorWithTickets }
        return result
    }
}

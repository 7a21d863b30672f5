// How instructions are counted:
//  1. A server runs under callgrind, which counts its user-space instructions. They repeat within about 1 %,
//     even on a busy machine. Times do not.
//  2. Two runs of different lengths start with the same connection. The slope is the cost per operation, and
//     the cost of starting the server cancels out.
//  3. Instructions are counted per mebibyte for bulk transfers, and per operation otherwise.
//  4. Go is left out: its runtime delivers signals to itself, at which callgrind fails.

internal import Foundation

/// Counts user-space instructions per operation.
struct InstructionRun {
    let bench: Bench
    let servers: [Server]
    /// Prefixes of workload names. Empty means all.
    let filter: [String]

    struct Row: Codable {
        let workload: String
        let server: String
        let instructions: Double
        var goal: Double?
    }

    /// A workload whose instructions are counted.
    struct Count {
        let workload: String
        /// The maximum for the inline delegate, in instructions.
        var inline: Double?
        /// The maximum for tasks, relative to the inline delegate's instructions.
        var tasks: Double?

        /// The maximum for the inline delegate, relative to the floor's instructions.
        var floor: Double?
        /// The maximum for the drop-in module, relative to a delegate with a queue.
        var cocoa: Double?
        /// The maximum for delegates and tasks that borrow the bytes, in instructions.
        var borrowed: Double?

        /// The maximum number of instructions for a server. A relative goal needs the result that it is
        /// relative to.
        func goal(
            of server: String, inline measured: Double?, floor floorMeasured: Double? = nil, queue: Double? = nil
        ) -> Double? {
            switch server {
            case Server.oursWithCocoa: queue.flatMap { measured in cocoa.map { $0 * measured } }
            case Server.oursBorrowed, Server.oursBorrowedByTasks: borrowed
            case Server.ours: inline ?? floorMeasured.flatMap { measured in floor.map { $0 * measured } }
            case Server.oursWithTasks: measured.flatMap { measured in tasks.map { $0 * measured } }
            default: nil
            }
        }
    }

    static let counts = [
        Count(workload: "plain-echo-64B-64", inline: 3_500, tasks: 1.15, cocoa: 1.3, borrowed: 3_500),
        Count(workload: "tls-echo-64B-64", inline: 20_500, tasks: 1.15),
        Count(workload: "plain-lines", tasks: 1.2), Count(workload: "tls-lines", tasks: 1.2),
        Count(workload: "accept", inline: 20_000), Count(workload: "handshake"), Count(workload: "resumed"),
        Count(workload: "plain-receive"), Count(workload: "tls-receive"), Count(workload: "plain-send"),
        Count(workload: "tls-send"), Count(workload: "udp-echo-64B-64"), Count(workload: "udp-receive", floor: 1.25),
        Count(workload: "udp-send", floor: 1.25),
    ]

    /// Seconds. A bulk transfer or a handshake takes long under callgrind.
    private static func lengths(of workload: Workload) -> (short: Double, long: Double) {
        let isSlow = workload.mode == .receive || workload.mode == .source || workload.load.contains("connect")
        return isSlow ? (4, 12) : (1.5, 4)
    }

    func run() throws -> [Row] {
        var rows: [Row] = []
        for entry in Self.counts where filter.isEmpty || filter.contains(where: { entry.workload.hasPrefix($0) }) {
            let name = entry.workload
            guard let workload = Workload.all.first(where: { $0.name == name }) else { continue }
            for server in servers where server.can(workload) && server.name != Server.go {
                progress("\(name), \(server.name)")
                let file = try stripped(bench.file(of: server))
                defer { try? FileManager.default.removeItem(at: file) }
                let lengths = Self.lengths(of: workload)
                let short = try count(workload, server, file, seconds: lengths.short)
                let long = try count(workload, server, file, seconds: lengths.long)
                guard long.units > short.units else { throw BenchError("\(name): the longer run did no more operations") }
                let slope = (long.instructions - short.instructions) / (long.units - short.units)
                progress("\(name), \(server.name): \(Int(slope.rounded())) instructions")
                rows.append(Row(workload: name, server: server.name, instructions: slope))
            }
            setGoals(of: entry, in: &rows)
        }
        if rows.isEmpty { throw BenchError("no workload selected") }
        return rows
    }

    private func setGoals(of entry: Count, in rows: inout [Row]) {
        func measured(_ server: String) -> Double? {
            rows.first { $0.workload == entry.workload && $0.server == server }?.instructions
        }
        let (inline, floor, queue) = (measured(Server.ours), measured(Server.floor), measured(Server.oursWithQueue))
        for index in rows.indices where rows[index].workload == entry.workload {
            rows[index].goal = entry.goal(of: rows[index].server, inline: inline, floor: floor, queue: queue)
        }
    }

    /// Copies a program without its debug information, which valgrind does not need and cannot always read.
    private func stripped(_ program: URL) throws -> URL {
        let copy = FileManager.default.temporaryDirectory.appending(path: "\(program.lastPathComponent)-\(UUID().uuidString)")
        let objcopy = Process()
        objcopy.executableURL = URL(filePath: "/usr/bin/objcopy")
        objcopy.arguments = ["--strip-debug", program.path, copy.path]
        try objcopy.run()
        objcopy.waitUntilExit()
        guard objcopy.terminationStatus == 0 else { throw BenchError("objcopy could not copy \(program.path)") }
        return copy
    }

    private func count(
        _ workload: Workload, _ server: Server, _ file: URL, seconds: Double
    ) throws -> (instructions: Double, units: Double) {
        let counts = FileManager.default.temporaryDirectory.appending(path: "callgrind-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: counts) }
        let trial = Trial(bench: bench, workload: workload, server: server)
        let program = try Program(
            URL(filePath: "/usr/bin/valgrind"),
            ["--quiet", "--tool=callgrind", "--callgrind-out-file=\(counts.path)", file.path]
                + trial.serverArguments,
            processors: trial.serverProcessors, patience: 60)
        defer { program.stop() }
        let port = try program.readLine(within: 60)
        let load = try Program(
            bench.nativePrograms.appending(path: "load"),
            workload.loadArguments + ["--port", port, "--warm", "0", "--seconds", "\(seconds)"],
            processors: trial.loadProcessor...trial.loadProcessor)
        let done = try JSONDecoder().decode(LoadResult.self, from: Data(try load.readLine(within: 300).utf8))
        load.stop()
        program.stop()
        let isBulk = workload.mode == .receive || workload.mode == .source
        return (try Self.total(in: counts), isBulk ? (done.bytes ?? 0) / 1_048_576 : done.operations)
    }

    /// Reads the total that callgrind writes when the program exits.
    private static func total(in file: URL) throws -> Double {
        let text = try String(contentsOf: file, encoding: .utf8)
        guard let line = text.textLines.last(where: { $0.hasPrefix("summary:") || $0.hasPrefix("totals:") }),
            let total = line.split(separator: " ").last.flatMap({ Double($0) })
        else { throw BenchError("\(file.path) has no total: the server did not exit normally") }
        return total
    }
}

/// The results as a table and as JSON.
struct InstructionReport {
    let machine: Machine
    let rows: [InstructionRun.Row]

    var report: Report {
        var table = TextTable(leftColumns: 2)
        table.add("workload", "server", "instructions", "to c", "goal", "")
        for row in rows {
            let floor = rows.first { $0.workload == row.workload && $0.server == Server.floor }?.instructions
            let verdict = row.goal.map { row.instructions <= $0 ? "met" : "missed" } ?? ""
            table.add(
                row.workload, row.server, String(Int(row.instructions.rounded())),
                floor.map { (row.instructions / $0).short } ?? "", row.goal.map { String(Int($0)) } ?? "", verdict)
        }
        let text = """
            Instructions of user space, for each operation; bulk for each MiB (callgrind, the slope of two runs)

            \(table.text)

            """
        return Report(text: text, json: Report.encode(rows), charts: [:])
    }
}

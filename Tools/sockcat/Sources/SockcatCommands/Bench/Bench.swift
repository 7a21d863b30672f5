internal import ArgumentParser
internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// `sockcat bench`: measures a server.
struct Bench: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measure how many handshakes, requests or bytes per second a server handles.",
        discussion: """
            Each connection starts its next operation when the previous one is complete, so a slow server \
            receives fewer operations. Percentiles are accurate to within 3 %. This program also uses CPU time: run it \
            on a different machine from the server, and compare only results from the same two machines.

            EXAMPLES:
              sockcat bench handshakes localhost 8443 --ca ca.pem
              sockcat bench handshakes localhost 8443 --ca ca.pem --resumed --connections 32
              sockcat bench handshakes localhost 5684 --dtls --ca ca.pem
              sockcat bench requests localhost 8443 --tls --ca ca.pem --http /
              sockcat bench requests localhost 6379 --send 'PING\\r\\n' --until '\\r\\n'
              sockcat bench bytes localhost 7000 --direction echo --block 65536
            """,
        subcommands: [BenchHandshakes.self, BenchRequests.self, BenchBytes.self])
}

/// The options of all measurements.
struct BenchOptions: ParsableArguments {
    @Argument(help: ArgumentHelp("A host name or address, HOST:PORT or unix:PATH.", valueName: "host"))
    var host: String

    @Argument(help: ArgumentHelp("The port.", valueName: "port"))
    var port: String?

    @Option(name: .shortAndLong, help: "The number of simultaneous connections.")
    var connections = 8

    @Option(name: .shortAndLong, help: ArgumentHelp("How long to measure, such as 5s or 1m.", valueName: "time"))
    var duration = DurationArgument(seconds: 5)

    @Option(help: "Stop after this many operations.")
    var count: Int?

    @Option(help: ArgumentHelp("The time limit for connecting and for each operation.", valueName: "time"))
    var timeout = DurationArgument(seconds: 10)

    @Flag(name: .customLong("reset"), help: "Close connections with a reset, so that local ports do not run out.")
    var resets = false

    @Flag(help: "Print one JSON object.")
    var json = false

    func validate() throws {
        guard (1...10_000).contains(connections) else {
            throw ValidationError("--connections must be from 1 to 10000, but is \(connections)")
        }
        if let count, count < 1 { throw ValidationError("--count must be at least 1, but is \(count)") }
    }

    /// Throws if options for TCP are combined with DTLS.
    func checkDatagrams(_ tls: TLSClientOptions) throws {
        if resets { throw ValidationError("--reset requires TCP: omit --dtls") }
        if tls.earlyData != nil { throw ValidationError("--early-data requires TLS: omit --dtls") }
    }

    func endpoint() throws -> Endpoint { try port.map { try Endpoint.host(host, port: $0) } ?? Endpoint(host) }

    /// Returns the target after a handshake in which the server has accepted the client.
    func target(
        _ tls: TLSClientOptions, isSecure: Bool, startTLS: StartTLSName?, isDatagram: Bool = false, _ reporter: Reporter
    ) async throws -> BenchTarget {
        if tls.insecure { reporter.warn(TLSClientChoices.insecureWarning) }
        Interruption.exitsImmediately()
        let endpoint = try endpoint()
        let choices = isSecure ? try tls.choices.plan(timeout: timeout.duration, isForDatagrams: isDatagram) : nil
        let plan = try await choices?.prepared(for: endpoint, within: timeout.duration)
        let target = BenchTarget(
            endpoint: endpoint, plan: plan, startTLS: startTLS, isDatagram: isDatagram, timeout: timeout.duration, resets: resets)
        return try await target.checked(reporter)
    }

    /// Runs a measurement and prints its result. If operations failed, the exit code is 1.
    func measure(
        _ measurement: BenchMeasurement, _ output: OutputOptions, _ reporter: Reporter,
        _ body: @escaping @Sendable (BenchWorker) async throws -> Void
    ) async throws {
        Interruption.exitsImmediately()
        let run = BenchRun(workers: min(connections, count ?? connections), duration: duration.duration, limit: count)
        let result = try await run.run(body)
        let report = BenchReport(
            result, target: "\(try endpoint())", measured: measurement, connections: run.workers)
        let text = BenchText(report: report, style: TerminalStyle(output.color, descriptor: STDOUT_FILENO))
        try await DescriptorWriter.standardOutput().write(json ? "\(PrintableText(json: report))\n" : text.full)
        try Self.report(result.failures, reporter)
    }

    private static func report(_ failures: [String: Int], _ reporter: Reporter) throws {
        if failures.isEmpty { return }
        for (message, count) in failures.sorted(by: { $0.value > $1.value }).prefix(3) {
            reporter.warn("\(count) × \(message)")
        }
        throw ExitCode(ExitStatus.failure.rawValue)
    }
}

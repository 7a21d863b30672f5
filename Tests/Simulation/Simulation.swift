// Runs the library under a deterministic schedule: see "A deterministic schedule" in Architecture.md.
//
//     Simulation KIND run FIRST COUNT [JOBS]   runs these seeds, and shortens the first failure
//     Simulation KIND find FIRST COUNT [JOBS [DEFECT]]   does not shorten; the kernel may have a defect
//     Simulation KIND replay SEED [KEPT]       runs one seed, and prints every step
//     Simulation KIND digests FIRST COUNT      prints a digest of each run

internal import CSimulation
internal import Glibc
internal import Logging

@main
enum Simulation {
    static func main() {
        CSim_restart_deterministically(CommandLine.unsafeArgv)
        let arguments = Array(CommandLine.arguments.dropFirst(2))
        let name = CommandLine.arguments.dropFirst().first ?? ""
        guard let kind = Run.kinds[name] else { return refuse() }
        Zygote.kind = kind
        func number(_ index: Int, _ standard: UInt64) -> UInt64 {
            arguments.indices.contains(index) ? UInt64(arguments[index]) ?? standard : standard
        }
        // Warnings about limits are part of the runs.
        LoggingSystem.bootstrap { _ in SwiftLogNoOpLogHandler() }
        Zygote.prepare()
        if arguments.count > 4 { Kernel.shared.defect = Kernel.Defect(rawValue: arguments[4]) }
        switch arguments.first {
        case "run", "find":
            let campaign = Campaign(
                first: number(1, 0), count: number(2, 1_000), jobs: Int(number(3, 2)),
                shortens: arguments.first == "run", name: name)
            exit(campaign.run() ? 0 : 1)
        case "replay":
            let kept = arguments.count > 2 ? Choices.Key.parse(arguments[2]) : nil
            let outcome = Zygote.run(number(1, 0), kept, isPrinted: true)
            print(outcome)
            exit(outcome.isFailure ? 1 : 0)
        case "digests":
            for seed in number(1, 0)..<number(1, 0) + number(2, 1) { print(seed, Zygote.run(seed)) }
        default: refuse()
        }
    }

    private static func refuse() {
        let kinds = Run.kinds.keys.sorted().joined(separator: "|")
        print("usage: Simulation \(kinds) run|find FIRST COUNT [JOBS] | replay SEED [KEPT] | digests FIRST COUNT")
        exit(2)
    }
}

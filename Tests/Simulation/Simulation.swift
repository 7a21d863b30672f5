// Runs the library under a deterministic schedule: see "A deterministic schedule" in Architecture.md.
//
//     Simulation run FIRST COUNT [JOBS]   runs these seeds, and shortens the first failure
//     Simulation find FIRST COUNT [JOBS [DEFECT]]   does not shorten; the simulated kernel may have a defect
//     Simulation replay SEED [KEPT]       runs one seed, and prints every step
//     Simulation digests FIRST COUNT      prints a digest of each run

internal import CSimulation
internal import Glibc

@main
enum Simulation {
    static func main() {
        CSim_restart_deterministically(CommandLine.unsafeArgv)
        let arguments = Array(CommandLine.arguments.dropFirst())
        func number(_ index: Int, _ standard: UInt64) -> UInt64 {
            arguments.indices.contains(index) ? UInt64(arguments[index]) ?? standard : standard
        }
        Zygote.prepare()
        if arguments.count > 4 { Kernel.shared.defect = Kernel.Defect(rawValue: arguments[4]) }
        switch arguments.first {
        case "run", "find":
            let campaign = Campaign(
                first: number(1, 0), count: number(2, 1_000), jobs: Int(number(3, 2)), shortens: arguments.first == "run")
            exit(campaign.run() ? 0 : 1)
        case "replay":
            let kept = arguments.count > 2 ? Choices.Key.parse(arguments[2]) : nil
            let outcome = Zygote.run(number(1, 0), kept, isPrinted: true)
            print(outcome)
            exit(outcome.isFailure ? 1 : 0)
        case "digests":
            for seed in number(1, 0)..<number(1, 0) + number(2, 1) { print(seed, Zygote.run(seed)) }
        default:
            print("usage: Simulation run|find FIRST COUNT [JOBS] | replay SEED [KEPT] | digests FIRST COUNT")
            exit(2)
        }
    }
}

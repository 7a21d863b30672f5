import SocketTestSupport
import SocketTestTraits
import Testing

/// The whole library under a deterministic schedule: see "A deterministic schedule" in Architecture.md.
///
/// `SIMULATIONS` is the number of seeds of each kind; `SIMULATION_SEED` is the first seed, 0 by default.
/// A failure prints the seed, and a command that replays it.
@Suite(.serialized, .timeLimit(.patient), .noSanitizer) struct SimulationTests {
    private static let kinds: [(String, UInt64)] = [
        ("streams", 1_000), ("listeners", 700), ("limits", 400), ("datagrams", 300),
    ]

    @Test(arguments: kinds)
    func noScheduleViolatesAnInvariant(kind: String, count: UInt64) async throws {
        let (status, output) = try await ProbeProcess.simulation(
            kind, "run", "\(Seeds.count("SIMULATION_SEED", 0))", "\(Seeds.count("SIMULATIONS", count))")
        #expect(status == 0 && output.contains("seeds passed"), "\(output)")
    }

    @Test(arguments: ["losesBytes", "doublesBytes", "losesEdges", "isLate"])
    func aKernelWithADefectViolatesAnInvariant(defect: String) async throws {
        let (status, output) = try await ProbeProcess.simulation("streams", "find", "0", "500", "2", defect)
        #expect(status == 1 && output.contains("FAILED"), "\(output)")
        for chance in ["signal", "no end"] { #expect(!output.contains(chance), "\(output)") }
    }

    @Test(arguments: kinds.map(\.0)) func aSeedDeterminesItsRun(kind: String) async throws {
        let first = "\(Seeds.count("SIMULATION_SEED", 0))"
        let once = try await ProbeProcess.simulation(kind, "digests", first, "20")
        let again = try await ProbeProcess.simulation(kind, "digests", first, "20")
        #expect(once.status == 0)
        #expect(once.output == again.output)
    }
}

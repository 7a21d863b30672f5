import Foundation
import Testing

/// Runs `EngineProbe`, which has a process to itself.
@Suite(.timeLimit(.minutes(5))) struct ProbeTests {
    private func run(_ probe: String) async throws -> (status: Int32, output: String) {
        let process = Process()
        let folder = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
        process.executableURL = folder.appendingPathComponent("EngineProbe")
        process.arguments = [probe]
        let output = Pipe()
        process.standardOutput = output
        let status = try await withCheckedThrowingContinuation { continuation in
            process.terminationHandler = { continuation.resume(returning: $0.terminationStatus) }
            do { try process.run() } catch { continuation.resume(throwing: error) }
        }
        let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        return (status, text)
    }

    @Test func anExhaustedDescriptorTablePausesTheListenerAndLosesNoConnection() async throws {
        let (status, output) = try await run("descriptors")
        #expect(status == 0, "\(output)")
    }

    @Test func anEventLoopThatLacksADescriptorFailsAndLeavesNothingBehind() async throws {
        let (status, output) = try await run("loops")
        #expect(status == 0, "\(output)")
    }

    @Test func d9BytesThatArriveDuringATrustPauseCostNoProcessorTime() async throws {
        let (status, output) = try await run("trust")
        #expect(status == 0, "\(output)")
    }

    @Test func aThousandSocketsThatShareADelegateQueueNeedFewThreads() async throws {
        let (status, output) = try await run("threads")
        #expect(status == 0, "\(output)")
    }
}

internal import Foundation

/// Runs `EngineProbe`, or another program of the tests, in a separate process.
package enum ProbeProcess {
    /// Runs the probe and returns its exit status and output.
    ///
    /// - Parameters:
    ///   - arguments: Those of the probe.
    ///   - script: Shell commands that run it as `$0`, in a network of its own.
    ///   - hasOwnMounts: The script has its own mounts too.
    package static func run(
        _ arguments: [String] = [], script: String? = nil, hasOwnMounts: Bool = false
    ) async throws -> (status: Int32, output: String) {
        guard let script else { return try await run(probe, arguments) }
        return try await run(
            URL(filePath: "/usr/bin/unshare"),
            ["--map-root-user", "--net"] + (hasOwnMounts ? ["--mount"] : []) + ["sh", "-ec", script, probe.path] + arguments)
    }

    /// Runs `Simulation`.
    package static func simulation(_ arguments: String...) async throws -> (status: Int32, output: String) {
        try await run(program("Simulation"), arguments)
    }

    /// Runs shell commands in which the probe is `$0`.
    package static func shell(_ script: String, _ arguments: String...) async throws -> (status: Int32, output: String) {
        try await shell(script, arguments)
    }

    package static func shell(_ script: String, _ arguments: [String]) async throws -> (status: Int32, output: String) {
        try await run(URL(filePath: "/bin/sh"), ["-c", script, probe.path] + arguments)
    }

    private static var probe: URL { program("EngineProbe") }

    private static func program(_ name: String) -> URL {
        URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent().appending(path: name)
    }

    private static func run(_ program: URL, _ arguments: [String]) async throws -> (status: Int32, output: String) {
        let process = Process()
        process.executableURL = program
        process.arguments = arguments
        let output = Pipe()
        process.standardOutput = output
        process.standardError = output
        // Read while the program runs, because it blocks when the pipe is full. Not in a task: two programs
        // would occupy both threads of a pool on two processors, and no other test would go on until they
        // exit.
        async let text = withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(with: Result { try output.fileHandleForReading.readToEnd() ?? Data() })
            }
        }
        let status = try await withCheckedThrowingContinuation { continuation in
            process.terminationHandler = { continuation.resume(returning: $0.terminationStatus) }
            do { try process.run() } catch { continuation.resume(throwing: error) }
        }
        return (status, String(decoding: try await text, as: UTF8.self))
    }
}

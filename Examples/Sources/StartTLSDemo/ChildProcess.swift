internal import Foundation

/// A child process of the demo.
final class ChildProcess: Sendable {
    let identifier: Int32
    /// The write end of a pipe to its standard input.
    let input: FileHandle
    private let endings: AsyncStream<Int32>

    /// - Parameter output: The file to use as its standard output.
    init(_ arguments: [String], output: Any = FileHandle.nullDevice) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        // This process's threads block signals and the child inherits the mask, so without this option
        // `stop()` would have no effect.
        process.arguments = ["--default-signal=TERM"] + arguments
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        let pipe = Pipe()
        process.standardInput = pipe
        let (stream, continuation) = AsyncStream<Int32>.makeStream()
        process.terminationHandler = { process in
            continuation.yield(process.terminationStatus)
            continuation.finish()
        }
        try process.run()
        identifier = process.processIdentifier
        input = pipe.fileHandleForWriting
        endings = stream
    }

    func stop() {
        kill(identifier, SIGTERM)
    }

    /// Waits for the process to exit and returns its status. Every process in the demo has a deadline or is
    /// stopped, so this always returns.
    func exitStatus() async -> Int32 {
        for await status in endings { return status }
        return -1
    }
}

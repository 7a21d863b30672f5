internal import Foundation

/// A process that the demonstration starts, and can wait for.
final class ChildProcess: Sendable {
    let identifier: Int32
    /// The end of a pipe to its standard input.
    let input: FileHandle
    private let endings: AsyncStream<Int32>

    /// - Parameter output: The file for its standard output.
    init(_ arguments: [String], output: Any = FileHandle.nullDevice) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        // The threads of this process block signals, and a child inherits that: without this option `stop()`
        // would have no effect.
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

    /// Asks the process to end.
    func stop() {
        kill(identifier, SIGTERM)
    }

    /// Waits for the process to end; returns its exit status. Every process of the demonstration has a
    /// deadline, or is asked to end.
    func exitStatus() async -> Int32 {
        for await status in endings { return status }
        return -1
    }
}

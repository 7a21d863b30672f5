internal import Foundation

/// A process that the demonstration starts, and whose end it can wait for.
final class ChildProcess: Sendable {
    let identifier: Int32
    /// Where to write to its standard input.
    let input: FileHandle
    private let endings: AsyncStream<Int32>

    /// - Parameter output: Where its standard output goes.
    init(_ arguments: [String], output: Any = FileHandle.nullDevice) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        // The threads of this process block signals, and a child inherits that: without this `stop()` would
        // go unheard.
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

    /// Asks it to end.
    func stop() {
        kill(identifier, SIGTERM)
    }

    /// Its exit status, once it has ended. All the demonstration's processes have a deadline of their own, or
    /// are asked to end.
    func exitStatus() async -> Int32 {
        for await status in endings { return status }
        return -1
    }
}

import Foundation
import SocketBuffers
import Testing

/// A third-party program that is started for one test and stopped with it.
final class Program: Sendable {
    private let process: Locked<Process>
    /// The output goes to a file instead of a pipe, so that it is complete when the program has exited.
    private let output: URL
    private let standardInput: ProgramInput
    private let ended: AsyncStream<Int32>
    let name: String

    /// - Parameter input: Its complete standard input, or nil to leave standard input open.
    init(_ arguments: [String], input: String? = nil) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        // This process's threads block signals and the child inherits the mask, so without this option
        // `stop()` would have no effect. tshark stops its child with SIGINT.
        process.arguments = ["--default-signal=TERM,INT"] + arguments
        name = arguments.first ?? ""
        let (stream, continuation) = AsyncStream<Int32>.makeStream()
        ended = stream
        output = FileManager.default.temporaryDirectory.appending(path: "program-\(UUID().uuidString)")
        try Data().write(to: output)
        let out = try FileHandle(forWritingTo: output)
        process.standardOutput = out
        process.standardError = out
        standardInput = try ProgramInput()
        process.standardInput = standardInput.theirs
        process.terminationHandler = { process in
            continuation.yield(process.terminationStatus)
            continuation.finish()
        }
        try process.run()
        self.process = Locked(process)
        try standardInput.begin()
        if let input {
            try standardInput.write(input)
            try standardInput.end()
        }
    }

    /// Writes to its standard input, which stays open. Only for programs without `input`.
    func write(_ text: String) throws {
        try standardInput.write(text)
    }

    /// Stops the program. Call this in a `defer`, which also keeps the program and its files alive until
    /// then.
    func stop() {
        process.withLock { if $0.isRunning { $0.terminate() } }
    }

    var isRunning: Bool { process.withLock { $0.isRunning } }

    /// Returns its exit status when it exits by itself. If it does not, the test's time limit ends the wait.
    func exitStatus() async -> Int32 {
        for await status in ended { return status }
        return process.withLock { $0.terminationStatus }
    }

    /// The output so far.
    var printed: String {
        (try? String(decoding: Data(contentsOf: output), as: UTF8.self)) ?? ""
    }

    deinit {
        try? FileManager.default.removeItem(at: output)
    }
}

/// A folder that is deleted after the test.
final class TemporaryFolder: Sendable {
    let path: String

    init() throws {
        path = FileManager.default.temporaryDirectory.appendingPathComponent("interop-\(UUID().uuidString)").path
        // Daemons that switch to their own user need access.
        try FileManager.default.createDirectory(
            atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o755])
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    func write(_ text: String, to name: String) throws -> String {
        let file = "\(path)/\(name)"
        try text.write(toFile: file, atomically: true, encoding: .utf8)
        return file
    }

    func makeFolder(_ name: String, owner: String? = nil) throws -> String {
        let folder = "\(path)/\(name)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        if let owner { try FileManager.default.setAttributes([.ownerAccountName: owner], ofItemAtPath: folder) }
        return folder
    }
}

extension Program {
    /// The Go tool, for a shell. All tests share its usual cache: with an empty cache, each build compiles
    /// Go's standard library.
    static let go =
        "env CGO_ENABLED=0 GO111MODULE=off GOCACHE=\"${GOCACHE:-${HOME:-/root}/.cache/go-build}\" go"
}

import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// systemd-socket-activate listens, and starts `EngineProbe` with the sockets on the first connection.
@Suite(.timeLimit(.patient)) struct SocketActivationTests {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
    }

    /// The program's output goes to a file, which is complete when the program has exited.
    private func start(_ arguments: [String], _ probeName: String) throws -> (Process, ended: AsyncStream<Int32>) {
        let process = Process()
        let folderOfTests = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
        let probe = folderOfTests.appendingPathComponent("EngineProbe")
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        // This process's threads block signals, and the child inherits the mask. systemd-socket-activate
        // passes on only the environment variables given to it.
        let names = ["LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS"]
        let passed = names.filter { ProcessInfo.processInfo.environment[$0] != nil }.map { "--setenv=\($0)" }
        process.arguments =
            ["--default-signal=TERM", "systemd-socket-activate"] + passed + arguments + [probe.path, probeName, "web"]
        try Data().write(to: folder.url("log"))
        let log = try FileHandle(forWritingTo: folder.url("log"))
        process.standardOutput = log
        process.standardError = log
        let (ended, continuation) = AsyncStream<Int32>.makeStream()
        process.terminationHandler = {
            continuation.yield($0.terminationStatus)
            continuation.finish()
        }
        try process.run()
        return (process, ended)
    }

    private var log: String {
        get throws { try String(contentsOf: folder.url("log"), encoding: .utf8) }
    }

    @Test(arguments: [0, 1, 2], ["activation", "listener"])
    func aSocketOfSystemdIsServedUnderItsName(index: Int, probe: String) async throws {
        let host = try SocketEndpoint.loopback(port: RawSocket.freePort())
        let paths = ["a", "b"].map { folder.path($0) }
        let (process, ended) = try start(
            ["--listen=\(host)"] + paths.map { "--listen=\($0)" } + ["--fdname=web:other:web"], probe)
        defer { if process.isRunning { process.terminate() } }
        do {
            try await eventually("all sockets listen") {
                try log.components(separatedBy: "Listening on").count == 4 || !process.isRunning
            }
        } catch {
            let said = try log
            throw Unexpected(description: "\(error): \(said)")
        }
        let said = try log
        try #require(process.isRunning, "\(said)")
        let addresses = [host] + paths.compactMap { SocketEndpoint(unixPath: $0) }
        // A connection to the socket with another name also starts the program, which does not accept it.
        let other = index == 1 ? try RawSocket.connected(to: addresses[1]) : nil
        let served = addresses[index == 1 ? 0 : index]
        let client = try RawSocket.connected(to: served)
        try client.send("hello\n")
        #expect(try client.receiveAll() == "hello\n")
        var status: Int32?
        for await found in ended { status = found }
        let printed = try log
        #expect(status == 0, "\(printed)")
        let claims = probe == "listener" ? "" : "unclaimed: [\"other\"]\nalreadyClaimed\n"
        #expect(printed.contains("served web at \(served)\n" + claims), "\(printed)")
        // The files belong to systemd.
        for path in paths { #expect(FileManager.default.fileExists(atPath: path)) }
        withExtendedLifetime(other) {}
    }
}

import Foundation

@testable import SockcatCommands

/// The program under test.
enum SockcatProcess {
    /// The executable, next to the tests.
    static let path =
        (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
        .map { ($0 as NSString).deletingLastPathComponent + "/sockcat" } ?? "sockcat"

    /// The folder of the executable.
    static var folder: String { (path as NSString).deletingLastPathComponent }

    struct Outcome: Equatable {
        var status: Int32
        var output: String
        var errors: String
    }

    /// Runs a shell command in which `sockcat` is the program under test, and returns after it has exited.
    static func shell(_ command: String, in folder: TestFolder, environment: [String: String] = [:]) async throws -> Outcome {
        let errors = folder.path("errors-\(UUID().uuidString)")
        let line = "cd \(folder.path); sockcat() { \(path) \"$@\"; }; exec 2>\(errors); \(command)"
        let child = try ChildProcess(shell: line, environment: environment)
        var output = Data()
        while let bytes = try await child.output.read() { output += bytes }
        let status = await child.wait()
        return Outcome(
            status: status, output: String(decoding: output, as: UTF8.self), errors: try LocalFile.text(errors))
    }

    /// Runs `sockcat` with arguments and an input, and returns after it has exited.
    static func run(_ arguments: String, input: String = "", in folder: TestFolder) async throws -> Outcome {
        let file = try folder.write(input, to: "input-\(UUID().uuidString)")
        return try await shell("sockcat \(arguments) < \(file)", in: folder)
    }
}

/// A client that sends the lines of its input to a DTLS server on localhost.
struct DatagramClient {
    private let child: ChildProcess
    private let lines: LineReader

    init(of port: Int, in folder: TestFolder) throws {
        child = try ChildProcess(
            shell:
                "cd \(folder.path); exec \(SockcatProcess.path) connect -v --dtls --ca ca.pem --linger 2s localhost \(port) 2>&1",
            environment: [:])
        lines = LineReader(child.output)
    }

    func send(_ text: String) async throws { try await child.input.write(Data(text.utf8)) }

    func endInput() { child.input.finish() }

    /// Returns the first line that contains a text.
    @discardableResult
    func line(containing text: String) async throws -> String { try await lines.line(containing: text) }

    /// Waits for the end of the client and returns its exit code.
    func ended() async -> Int32 {
        await withTaskCancellationHandler {
            await child.wait()
        } onCancel: {
            child.send(SIGKILL)
        }
    }
}

/// A server that was started with `sockcat`.
final class SockcatServer: Sendable {
    let port: Int
    /// The lines that the server printed before it was ready.
    let banner: [String]
    private let child: ChildProcess
    private let reader: LineReader

    /// Starts a server and waits until it listens. The arguments must contain port 0. `preparation` is a
    /// shell command to run first.
    init(
        _ arguments: String, in folder: TestFolder, output: String = "/dev/null", preparation: String = ":"
    ) async throws {
        child = try ChildProcess(
            shell: "cd \(folder.path); \(preparation); exec \(SockcatProcess.path) \(arguments) 2>&1 >\(output)",
            environment: [:])
        reader = LineReader(child.output)
        var lines: [String] = []
        while let line = try await reader.next() {
            lines.append(line)
            if line.hasPrefix("listening on ") { break }
        }
        guard let address = lines.last?.split(separator: " ").last, lines.last?.hasPrefix("listening on ") == true else {
            throw Failure("the server did not start: \(lines)")
        }
        (port, banner) = (address.split(separator: ":").last.flatMap { Int($0) } ?? 0, lines)
    }

    deinit { child.send(SIGKILL) }

    /// Returns the first line that contains a text.
    func line(containing text: String) async throws -> String { try await reader.line(containing: text) }

    /// Starts a graceful end. The server continues to serve its connections.
    func terminate() { child.terminate() }

    /// Ends the server after its connections, which must be closed, and returns its exit code.
    @discardableResult
    func stop() async -> Int32 {
        terminate()
        return await ended()
    }

    /// Waits for the end of the server and returns its exit code.
    func ended() async -> Int32 {
        await withTaskCancellationHandler {
            await child.wait()
        } onCancel: {
            child.send(SIGKILL)
        }
    }
}

/// Reads lines of text from a descriptor.
actor LineReader {
    private let reader: DescriptorReader
    private var splitter = LineSplitter()
    private var lines: [String] = []

    init(_ reader: DescriptorReader) {
        self.reader = reader
    }

    /// Returns the next line that contains a text.
    func line(containing text: String) async throws -> String {
        while let line = try await next() {
            if line.contains(text) { return line }
        }
        throw Failure("the program ended without printing \"\(text)\"")
    }

    func next() async throws -> String? {
        while lines.isEmpty {
            guard let bytes = try await reader.read() else { return nil }
            lines += splitter.lines(in: bytes).map { String(decoding: $0.dropLast(), as: UTF8.self) }
        }
        return lines.removeFirst()
    }
}

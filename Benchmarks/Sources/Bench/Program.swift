internal import Foundation

/// A program that runs on the given processors and is stopped when this object is released.
final class Program {
    private let process = Process()
    private let output = Pipe()
    private let input = Pipe()
    private let errors: URL
    private var unread = Data()
    private let name: String
    private let patience: Double

    /// - Parameter patience: The time in seconds that the program has to exit after it is told to.
    init(_ file: URL, _ arguments: [String], processors: ClosedRange<Int>, patience: Double = 1) throws {
        self.patience = patience
        name = file.lastPathComponent
        errors = FileManager.default.temporaryDirectory.appending(path: "bench-\(UUID().uuidString)")
        guard FileManager.default.createFile(atPath: errors.path, contents: nil) else {
            throw BenchError("\(errors.path) cannot be created")
        }
        process.executableURL = URL(filePath: "/usr/bin/taskset")
        process.arguments = ["-c", "\(processors.lowerBound)-\(processors.upperBound)", file.path] + arguments
        process.standardOutput = output
        process.standardInput = input
        process.standardError = try FileHandle(forWritingTo: errors)
        try process.run()
        // The child process has its own copy.
        try output.fileHandleForWriting.close()
        try input.fileHandleForReading.close()
    }

    deinit { stop() }

    /// taskset executes the program in place, so this is also the program's process ID.
    var id: Int32 { process.processIdentifier }

    /// Reads the next line of the program's output. Throws if the program exits or prints nothing for `limit`
    /// seconds.
    func readLine(within limit: Double) throws -> String {
        let end = Date(timeIntervalSinceNow: limit)
        while true {
            if let newline = unread.firstIndex(of: 10) {
                let line = unread[unread.startIndex..<newline]
                unread = Data(unread[(newline + 1)...])
                return String(decoding: line, as: UTF8.self)
            }
            let descriptor = output.fileHandleForReading.fileDescriptor
            var wait = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let left = end.timeIntervalSinceNow
            guard left > 0, poll(&wait, 1, Int32(left * 1000) + 1) >= 0 else {
                throw failure("printed nothing in \(limit) seconds")
            }
            guard wait.revents != 0 else { continue }
            let bytes = output.fileHandleForReading.availableData
            if bytes.isEmpty { throw failure("ended") }
            unread.append(bytes)
        }
    }

    /// Whether a line is available or arrives within the given number of seconds.
    func hasLine(within limit: Double) -> Bool {
        var wait = pollfd(fd: output.fileHandleForReading.fileDescriptor, events: Int16(POLLIN), revents: 0)
        return unread.contains(10) || poll(&wait, 1, Int32(limit * 1000)) > 0
    }

    func send(_ line: String) throws {
        try input.fileHandleForWriting.write(contentsOf: Data((line + "\n").utf8))
    }

    /// Returns the number in a line of the program's /proc/PID/status.
    func status(_ field: String) throws -> Double {
        let text = try String(contentsOfFile: "/proc/\(id)/status", encoding: .utf8)
        let line = text.textLines.first { $0.hasPrefix(field + ":") }
        guard let number = line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap({ Double($0) }) else {
            throw failure("has no \(field)")
        }
        return number
    }

    func stop() {
        if process.isRunning {
            process.terminate()
            var isEnded = false
            for _ in 0..<Int(patience * 200) where !isEnded {
                isEnded = !process.isRunning
                if !isEnded { usleep(5_000) }
            }
            if !isEnded { kill(id, SIGKILL) }
            process.waitUntilExit()
        }
        try? FileManager.default.removeItem(at: errors)
    }

    private func failure(_ what: String) -> BenchError {
        let said = (try? String(contentsOf: errors, encoding: .utf8)) ?? ""
        return BenchError("\(name) \(what). \(said.prefix(2000))")
    }
}

/// An error that stops a benchmark.
struct BenchError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

internal import Foundation

/// The machine and the software versions used for a measurement.
struct Machine: Codable, Sendable {
    let date: String
    let processor: String
    let processors: Int
    let kernel: String
    let swift: String
    let openSSL: String
    let swiftNIO = "2.101.2"
    let swiftNIOSSL = "2.37.6"
    let commit: String
    /// The load average of the minute before the measurement. Below one on a quiet machine.
    let loadBefore: Double

    enum CodingKeys: String, CodingKey {
        case date, processor, processors, kernel, swift, openSSL, swiftNIO, swiftNIOSSL, commit, loadBefore
    }

    static func current() -> Machine {
        let information = (try? String(contentsOfFile: "/proc/cpuinfo", encoding: .utf8)) ?? ""
        let model = information.textLines.first { $0.hasPrefix("model name") }?.split(separator: ":").last
        let load = (try? String(contentsOfFile: "/proc/loadavg", encoding: .utf8))?.split(separator: " ").first.flatMap {
            Double($0)
        }
        let swift = output("swift", "--version").textLines.first { $0.contains("Swift version") } ?? "unknown"
        return Machine(
            date: Date().formatted(.iso8601.year().month().day()),
            processor: model.map { $0.trimmingCharacters(in: .whitespaces) } ?? "unknown",
            processors: ProcessInfo.processInfo.activeProcessorCount,
            kernel: output("uname", "-sr"),
            swift: String(swift),
            openSSL: output("pkg-config", "--modversion", "openssl"),
            commit: output("git", "rev-parse", "--short", "HEAD"),
            loadBefore: load ?? 0)
    }

    var lines: [String] {
        [
            "\(date), commit \(commit)",
            "\(processor), \(processors) processors; \(kernel)",
            "\(swift); OpenSSL \(openSSL); SwiftNIO \(swiftNIO), swift-nio-ssl \(swiftNIOSSL)",
            "load of the machine before: \(loadBefore)\(loadBefore < 1 ? "" : " (not quiet: use only the ratios, with caution)")",
        ]
    }

    private static func output(_ words: String...) -> String {
        (try? run(words))?.trimmingCharacters(in: .whitespacesAndNewlines) ?? "unknown"
    }

    /// Runs a program and returns its output.
    @discardableResult
    static func run(_ words: String...) throws -> String {
        try run(words)
    }

    private static func run(_ words: [String]) throws -> String {
        let (process, pipe) = (Process(), Pipe())
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = words
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        try process.run()
        let bytes = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw BenchError("\(words.joined(separator: " ")) failed") }
        return String(decoding: bytes, as: UTF8.self)
    }
}

extension String {
    /// The lines that are not empty, without their terminators.
    var textLines: [Substring] {
        utf8.split(separator: UInt8(ascii: "\n")).map { Substring($0.last == UInt8(ascii: "\r") ? $0.dropLast() : $0) }
    }
}

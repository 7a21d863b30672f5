import Foundation

/// The `openssl` program, used as an independent verifier of the certificates.
enum OpenSSLProgram {
    struct Answer {
        var succeeded: Bool
        /// Standard output and standard error.
        var text: String
    }

    static func run(_ arguments: String...) throws -> Answer { try run(arguments) }

    static func run(_ arguments: [String]) throws -> Answer {
        let process = Process()
        let pipe = Pipe()
        process.executableURL = URL(filePath: "/usr/bin/env")
        // With the libraries that belong to it: Debian 12's openssl crashes with those of OpenSSL 3.5.
        process.arguments = ["--unset=LD_LIBRARY_PATH", "openssl"] + arguments
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = pipe
        process.standardError = pipe
        try process.run()
        let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return Answer(succeeded: process.terminationStatus == 0, text: String(decoding: output, as: UTF8.self))
    }
}

/// A directory that is deleted with its last reference.
final class TemporaryDirectory {
    let path: String

    init() throws {
        let url = FileManager.default.temporaryDirectory.appending(path: "AsyncSockets-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: false)
        path = url.path
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }
}

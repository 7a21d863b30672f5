internal import Foundation

/// The recorder, as seen by the process that starts it.
final class RecorderProcess {
    let port: UInt16
    var identifier: Int32 { process.identifier }
    private let process: ChildProcess
    private let folder: String

    /// - Parameter injection: Arguments for `record` that make it an attacker.
    init(target: UInt16, folder: String, injection: [String] = []) throws {
        let output = Pipe()
        let executable = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        process = try ChildProcess(
            [executable, "record", "--target", String(target), "--folder", folder] + injection, output: output)
        self.folder = folder
        guard let line = String(data: output.fileHandleForReading.availableData, encoding: .utf8),
            let port = UInt16(line.trimmingCharacters(in: .newlines))
        else { throw DemoError(description: "the recorder did not start") }
        self.port = port
    }

    /// Waits for the end of the connection and returns the bytes sent in each direction.
    func recordings() async throws -> (fromClient: Recording, fromServer: Recording) {
        guard await process.exitStatus() == 0 else { throw DemoError(description: "the recorder failed") }
        return (
            Recording(bytes: try read(Record.clientFile)),
            Recording(bytes: try read(Record.serverFile))
        )
    }

    private func read(_ name: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: "\(folder)/\(name)")))
    }
}

/// A failure of the demo itself.
struct DemoError: Error, CustomStringConvertible {
    let description: String
}

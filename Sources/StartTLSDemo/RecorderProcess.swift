internal import Foundation

/// The recorder, as seen by the process that starts it.
final class RecorderProcess {
    let port: UInt16
    var identifier: Int32 { process.processIdentifier }
    private let process: Process
    private let folder: String

    /// - Parameter injection: Arguments of `record` that make it an attacker.
    init(target: UInt16, folder: String, injection: [String] = []) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe")
        process.arguments = ["record", "--target", String(target), "--folder", folder] + injection
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        guard let line = String(data: output.fileHandleForReading.availableData, encoding: .utf8),
            let port = UInt16(line.trimmingCharacters(in: .newlines))
        else { throw DemoError(description: "the recorder did not start") }
        self.port = port
        self.process = process
        self.folder = folder
    }

    /// What passed in each direction, once the connection is over.
    func recordings() throws -> (fromClient: Recording, fromServer: Recording) {
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw DemoError(description: "the recorder failed") }
        return (
            Recording(bytes: try read(Record.clientFile)),
            Recording(bytes: try read(Record.serverFile))
        )
    }

    private func read(_ name: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: "\(folder)/\(name)")))
    }
}

/// The demonstration itself went wrong.
struct DemoError: Error, CustomStringConvertible {
    let description: String
}

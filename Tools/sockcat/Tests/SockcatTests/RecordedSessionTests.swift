import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

/// `Documentation/sockcat.md` shows what the program prints.
@Suite(.timeLimit(.minutes(5))) struct RecordedSessionTests {
    private let folder: TestFolder

    init() throws { folder = try TestFolder() }

    private static let document = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../../../Documentation/sockcat.md")

    @Test func theSessionsOfTheDocumentAreReal() async throws {
        let sessions = try RecordedSessions(in: String(contentsOf: Self.document, encoding: .utf8))
        #expect(sessions.commands.count >= 12)
        var ports: [String: String] = [:]
        for port in 7000...7009 { ports["\(port)"] = "\(try Self.unusedPort())" }
        try folder.write(sessions.script(SockcatProcess.path, ports: ports), to: "script")
        let outcome = try await SockcatProcess.shell("bash script", in: folder)
        var output = outcome.output.replacingOccurrences(of: "\r\n", with: "\n")
        for (port, unused) in ports { output = output.replacingOccurrences(of: unused, with: port) }
        let printed = output.components(separatedBy: RecordedSessions.marker).dropFirst()
        try #require(printed.count == sessions.commands.count, "\(outcome)")
        for (command, text) in zip(sessions.commands, printed) {
            let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropFirst().dropLast().map(String.init)
            let isSame = RecordedSessions.matches(lines[...], command.output[...])
            #expect(isSame, "$ \(command.text)\n\(lines.joined(separator: "\n"))")
        }
    }

    /// The comparison notices differences.
    @Test func anotherOutputIsNoticed() {
        #expect(RecordedSessions.matches(["a 12 b", "x", "y"], ["a … b", "…"]))
        #expect(!RecordedSessions.matches(["a 12 c"], ["a … b"]))
        #expect(!RecordedSessions.matches(["a"], []))
        #expect(!RecordedSessions.matches([], ["a"]))
    }

    private static func unusedPort() throws -> Int {
        Int(try SocketListener(port: 0, interface: "127.0.0.1").localPort)
    }
}

import AsyncSocketsTesting
import Foundation
import SocketTLS
import Testing

/// The key log file: its contents, its permissions, and errors.
@Suite struct KeyLogTests {
    /// A folder for one test.
    private final class Folder {
        let path = FileManager.default.temporaryDirectory.appending(path: "keys-\(UUID().uuidString)").path

        init() throws {
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        }

        deinit { try? FileManager.default.removeItem(atPath: path) }

        func lines(of name: String) throws -> [String] {
            let text = try String(contentsOfFile: "\(path)/\(name)", encoding: .utf8)
            #expect(text.isEmpty || text.hasSuffix("\n"))
            return text.split(separator: "\n").map(String.init)
        }
    }

    private static let labels: [TLSProtocolVersion: Set<String>] = [
        .tls12: ["CLIENT_RANDOM"],
        .tls13: [
            "SERVER_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "EXPORTER_SECRET",
            "SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0",
        ],
    ]

    private func shakeHands(_ fixture: Fixture, in cache: ContextCache = .shared) throws {
        let pair = try EnginePair(fixture.client, fixture.server, in: cache)
        pair.shakeHands()
        try #require(pair.isComplete)
    }

    @Test(arguments: versions) func bothSidesWriteTheSameSecrets(_ version: TLSProtocolVersion) throws {
        let folder = try Folder()
        var fixture = try Fixture(version)
        fixture.client.keyLogFile = "\(folder.path)/client"
        fixture.server.keyLogFile = "\(folder.path)/server"
        try shakeHands(fixture)
        let lines = try folder.lines(of: "client")
        #expect(try Set(lines) == Set(folder.lines(of: "server")))
        #expect(Set(lines.compactMap { $0.split(separator: " ").first.map(String.init) }) == Self.labels[version])
        #expect(lines.allSatisfy { $0.wholeMatch(of: /[A-Z0-9_]+ [0-9a-f]{64} ([0-9a-f]{64}|[0-9a-f]{96})/) != nil })
        let facts = try FileManager.default.attributesOfItem(atPath: "\(folder.path)/client")
        #expect(facts[.posixPermissions] as? Int == 0o600)
        // The next connection appends.
        try shakeHands(fixture)
        #expect(try Array(folder.lines(of: "client").prefix(lines.count)) == lines)
        #expect(try folder.lines(of: "client").count == 2 * lines.count)
    }

    /// In one cache, settings with and without a file have different contexts.
    @Test func onlyWhoAsksForItIsLogged() throws {
        let folder = try Folder()
        let cache = ContextCache(limit: 10)
        let silent = try Fixture()
        var logged = silent
        logged.client.keyLogFile = "\(folder.path)/keys"
        var other = silent
        other.client.keyLogFile = "\(folder.path)/others"
        try shakeHands(logged, in: cache)
        let count = try folder.lines(of: "keys").count
        #expect(count == 5)
        try shakeHands(silent, in: cache)
        try shakeHands(other, in: cache)
        #expect(try folder.lines(of: "keys").count == count)
        #expect(try folder.lines(of: "others").count == 5)
    }

    @Test func linesOfManyThreadsDoNotMix() async throws {
        let folder = try Folder()
        var fixture = try Fixture()
        fixture.client.keyLogFile = "\(folder.path)/keys"
        fixture.server.keyLogFile = "\(folder.path)/keys"
        let (settings, count) = (fixture, 40)
        try await withThrowingTaskGroup { group in
            for _ in 0..<count { group.addTask { try shakeHands(settings) } }
            try await group.waitForAll()
        }
        let lines = try folder.lines(of: "keys")
        #expect(lines.count == 2 * 5 * count)
        // Both sides log the same secrets.
        #expect(Set(lines).count == 5 * count)
    }

    @Test(arguments: ["", "/keys\0", "/missing/keys", "/folder", "/pipe"])
    func aFileThatCannotBeOpenedIsAnError(_ name: String) throws {
        let folder = try Folder()
        try FileManager.default.createDirectory(atPath: "\(folder.path)/folder", withIntermediateDirectories: false)
        #expect(mkfifo("\(folder.path)/pipe", 0o600) == 0)
        var settings = try Fixture().client
        settings.keyLogFile = name.isEmpty ? "" : folder.path + name
        let error = #expect(throws: TLSError.self) { _ = try TLSContext.context(for: settings) }
        #expect(error?.code == .invalidSettings && error?.message.contains("keyLogFile") == true)
    }
}

import Foundation
import SocketTestSupport
import Testing

/// Calls that do the same in two ways take the same arguments.
@Suite struct TwinCallTests {
    /// The labels of each public function `name` in the file that connects tasks, in the order of the file.
    private static func labels(of name: String) throws -> [[String]] {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources/AsyncSockets")
        let text = try String(contentsOf: folder.appending(path: "Async/AsyncSocket+TaskConnecting.swift"), encoding: .utf8)
        let start = "public [^\\n]*func \(name)(?:<Result>)?"
        let pattern = try Regex<(Substring, Substring)>(start + "\\(\\s(.*?)\\n    \\) async throws").dotMatchesNewlines()
        return text.matches(of: pattern).map { match in
            match.output.1.matches(of: /(?:^|,)\s*(\w+)(?: \w+)?:/).map { String($0.output.1) }
        }
    }

    /// `withConnection` takes what `connect` takes, and where and how its body runs.
    @Test func withConnectionTakesWhatConnectTakes() throws {
        let (connect, scoped) = (try Self.labels(of: "connect"), try Self.labels(of: "withConnection"))
        #expect(connect.map(\.first) == ["to", "to", "toPath"])
        #expect(scoped == connect.map { $0 + ["executor", "configure", "_"] })
        // A path has neither an interface nor a proxy.
        #expect(connect[0].filter { $0 != "port" } == connect[1])
        #expect(connect[0].filter { !["to", "port", "interface", "proxy"].contains($0) } == Array(connect[2].dropFirst()))
    }
}

import Foundation
import SocketTestSupport
import Testing

/// Equivalent calls have the same parameters.
@Suite struct TwinCallTests {
    /// Returns the argument labels of each public function `name` in the source file, in order.
    private static func labels(of name: String) throws -> [[String]] {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources/AsyncSockets")
        let text = try String(contentsOf: folder.appending(path: "Async/AsyncSocket+TaskConnecting.swift"), encoding: .utf8)
        let start = "public [^\\n]*func \(name)(?:<Result>)?"
        let pattern = try Regex<(Substring, Substring)>(start + "\\(\\s(.*?)\\n    \\) async throws").dotMatchesNewlines()
        return text.matches(of: pattern).map { match in
            match.output.1.matches(of: /(?:^|,)\s*(\w+)(?: \w+)?:/).map { String($0.output.1) }
        }
    }

    /// `withConnection` has the parameters of `connect`, plus those for its body.
    @Test func withConnectionTakesWhatConnectTakes() throws {
        let (connect, scoped) = (try Self.labels(of: "connect"), try Self.labels(of: "withConnection"))
        #expect(connect.map(\.first) == ["to", "to", "toPath"])
        #expect(scoped == connect.map { $0 + ["executor", "configure", "_"] })
        // A path has neither an interface nor a proxy.
        #expect(connect[0].filter { $0 != "port" } == connect[1])
        #expect(connect[0].filter { !["to", "port", "interface", "proxy"].contains($0) } == Array(connect[2].dropFirst()))
    }
}

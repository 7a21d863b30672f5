import Foundation

@testable import SockcatCommands

/// The sessions in a document: fenced blocks of the kind `console`, with commands after `$ ` and their
/// output.
struct RecordedSessions {
    struct Command: Equatable {
        var text: String
        /// The lines of the output. `…` stands for any text, and a line of it for any number of lines.
        var output: [String]
    }

    /// The commands of all blocks, in order. They share one folder.
    private(set) var commands: [Command] = []

    init(in document: String) {
        var isInside = false
        for line in document.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("```") {
                isInside = line == "```console"
            } else if isInside, line.hasPrefix("$ ") {
                commands.append(Command(text: String(line.dropFirst(2)), output: []))
            } else if isInside, !commands.isEmpty {
                commands[commands.count - 1].output.append(String(line))
            }
        }
    }

    /// Whether the lines match the expected output.
    static func matches(_ lines: ArraySlice<String>, _ expected: ArraySlice<String>) -> Bool {
        guard let first = expected.first else { return lines.isEmpty }
        if first == "…" {
            return (0...lines.count).contains { matches(lines.dropFirst($0), expected.dropFirst()) }
        }
        guard let line = lines.first, matches(line, first) else { return false }
        return matches(lines.dropFirst(), expected.dropFirst())
    }

    private static func matches(_ line: String, _ expected: String) -> Bool {
        let parts = expected.components(separatedBy: "…").map(NSRegularExpression.escapedPattern(for:))
        return line.range(of: "^" + parts.joined(separator: ".*") + "$", options: .regularExpression) != nil
    }

    /// A script for bash that runs the commands and prints a marker before the output of each. A command with
    /// `&` is a server: the script continues when the server listens.
    ///
    /// - Parameters:
    ///   - program: The path of the program.
    ///   - ports: Unused ports, for those that the document uses.
    func script(_ program: String, ports: [String: String]) -> String {
        var lines = ["trap 'kill $(jobs -p)' EXIT", "sockcat() { \(program) \"$@\"; }"]
        for (number, command) in commands.enumerated() {
            var text = command.text
            for (port, unused) in ports { text = text.replacingOccurrences(of: port, with: unused) }
            lines.append("echo '\(Self.marker)\(number)'")
            guard text.hasPrefix("sockcat "), text.hasSuffix(" &") else {
                lines.append("{ \(text)\n} 2>&1 </dev/null")
                continue
            }
            // Replaces the shell, so that the trap ends the server itself.
            lines.append("(exec \(program) \(text.dropFirst(8).dropLast(2)) >server\(number) 2>&1 </dev/null) &")
            lines.append("for _ in {1..600}; do grep -qs '^listening on' server\(number) && break; read -rt 0.1 <> <(:); done")
            lines.append("cat server\(number)")
        }
        return lines.joined(separator: "\n")
    }

    static let marker = "--- command "
}

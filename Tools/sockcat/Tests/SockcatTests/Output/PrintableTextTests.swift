import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

@Suite struct PrintableTextTests {
    /// A line break, an escape sequence, a C1 control character, a line separator and a character that
    /// reverses text.
    static let hostile = "a\nb\r\n\u{1B}[2J\u{9B}\u{7F}\u{2028}\u{202E}\u{200B}c"

    @Test func insertedValuesAreCleanedAndLiteralsAreNot() {
        let text: PrintableText = "one\ntwo: \(Self.hostile)"
        #expect(text.text.hasPrefix("one\ntwo: a\u{FFFD}b"))
        #expect(text.text.hasSuffix("\u{FFFD}c"))
        #expect(text.text.unicodeScalars.count { !OutputCheck.isPrintable($0) } == 1)
    }

    @Test func optionalAndOtherValuesAreCleanedToo() {
        let inner: PrintableText = "\(Self.hostile)"
        let values: [PrintableText] = [
            "\(Optional(Self.hostile) as Any)", "\([Self.hostile])", "\(Failure(Self.hostile))", "\(inner)\(inner)",
            ["\(Self.hostile)"].joined(), PrintableText(Self.hostile).padded(to: 100),
        ]
        for value in values { #expect(OutputCheck.faults(in: value.text) == [], "\(value.text)") }
    }

    @Test func theStringsOfJSONAreCleaned() throws {
        let value = ["name\n\u{1B}": Self.hostile, "path": "C:\\n \"quoted\" /", "emoji": "👍"]
        let json = try PrintableText(json: value).text
        #expect(OutputCheck.faults(in: json) == [], "\(json)")
        let decoded = try JSONDecoder().decode([String: String].self, from: Data(json.utf8))
        for (key, text) in decoded { #expect(OutputCheck.faults(in: key + text) == [], "\(key): \(text)") }
        #expect(decoded["path"] == "C:\\n \"quoted\" /")
        #expect(decoded["emoji"] == "👍")
    }

    /// A character that joins with the next one must not hide an escape sequence of JSON.
    @Test(arguments: ["\u{0D4E}", "\u{0600}", "e\u{301}", "\u{1F3FB}", "\u{1F468}\u{200D}", "\u{FE0F}"])
    func joinedCharactersOfJSONAreCleaned(joining: String) throws {
        for text in ["\n", "\u{1B}[31m", "\\q", "\"", "\\\n", "/"].map({ joining + $0 + joining + $0 }) {
            let json = try PrintableText(json: [text, text + "x"]).text
            #expect(OutputCheck.faults(in: json) == [], "\(json)")
            let decoded = try JSONDecoder().decode([String].self, from: Data(json.utf8))
            #expect(decoded == [PrintableText(text).text, PrintableText(text + "x").text])
        }
    }

    /// The library logs that it cannot accept more connections.
    @Test func theLibrarysLogHasTheFormOfTheProgramsMessages() async throws {
        let folder = try TestFolder()
        let server = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder, preparation: "ulimit -n 32")
        var clients: [AsyncSocket] = []
        for _ in 1...32 {
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: server.port)
            clients.append(client)
        }
        let line = try await server.line(containing: "accepting paused")
        #expect(line.hasPrefix("warning: accepting paused: reason "), "\(line)")
        for client in clients { client.disconnect() }
        await server.stop()
    }

    /// The other ways to standard output and standard error would bypass `PrintableText`.
    @Test func onlyTheListedFilesWriteToDescriptors() throws {
        let sources = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources")
        // A prompt and the default log of swift-log are output too.
        let writing = #/\bprint\(|\bputs\(|\bfputs\(|FileHandle\.standard|Glibc\.write\(|\bstderr\b|\bstdout\b|getpass\(/#
        let files = try #require(FileManager.default.enumerator(at: sources, includingPropertiesForKeys: nil))
        let writers = try files.compactMap { $0 as? URL }.filter { $0.pathExtension == "swift" }.filter { url in
            let lines = try String(contentsOf: url, encoding: .utf8).split(whereSeparator: \.isNewline)
            // `ReportPrinter.print` accepts only `PrintableText`.
            let code = lines.filter { $0.firstMatch(of: #/^ *///#) == nil }
                .map { $0.replacing("func print(", with: "").replacing("printer.print(", with: "") }
            return code.contains { $0.firstMatch(of: writing) != nil }
        }
        #expect(
            Set(writers.map(\.lastPathComponent))
                == [
                    "DescriptorWriter.swift", "OutputOptions.swift", "FileReplacement.swift", "Inspect.swift",
                    "ChildProcess.swift", "Watch.swift", "Passphrase.swift",
                ])
    }
}

/// Finds characters in the output of the program that it must not print.
enum OutputCheck {
    static func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }

    /// Returns the lines with control or format characters.
    static func faults(in output: String) -> [String] {
        let lines = output.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false)
        return lines.filter { !$0.allSatisfy(isPrintable) }.map { String($0) }
    }
}

import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// Text files mean the same with each line terminator.
@Suite(.timeLimit(.minutes(5))) struct TextFileTests {
    /// How a file is written.
    enum Form: CaseIterable {
        case lineFeeds, carriageReturnsAndLineFeeds, mixed, noLastLineEnd, byteOrderMark, byteOrderMarkAndCarriageReturns
        case blankLines, blanksAtTheEnds, carriageReturns

        func text(_ lines: [String]) -> String {
            switch self {
            case .lineFeeds: lines.map { $0 + "\n" }.joined()
            case .carriageReturnsAndLineFeeds: lines.map { $0 + "\r\n" }.joined()
            case .mixed: lines.enumerated().map { $1 + ($0.isMultiple(of: 2) ? "\r\n" : "\n") }.joined()
            case .noLastLineEnd: lines.joined(separator: "\n")
            case .byteOrderMark: "\u{FEFF}" + lines.map { $0 + "\n" }.joined()
            case .byteOrderMarkAndCarriageReturns: "\u{FEFF}" + lines.map { $0 + "\r\n" }.joined()
            case .blankLines: "\r\n\n" + lines.map { $0 + "\n\r\n" }.joined()
            case .carriageReturns: lines.map { $0 + "\r" }.joined()
            case .blanksAtTheEnds: lines.map { " \t" + $0 + "\t \r\n" }.joined()
            }
        }
    }

    private let folder: TestFolder

    init() throws { folder = try TestFolder() }

    @Test(arguments: Form.allCases) func aListOfServers(form: Form) throws {
        let lines = ["a:1", "b 2 smtp # comment", "# comment", "c:3 # comment", "unix:/d"]
        let targets = try InspectionTarget.targets(inList: form.text(lines), named: "list")
        #expect(
            targets == [
                .server(ServerTarget(endpoint: .host("a", port: 1))),
                .server(ServerTarget(endpoint: .host("b", port: 2), startTLS: .smtp)),
                .server(ServerTarget(endpoint: .host("c", port: 3))), .server(ServerTarget(endpoint: .unix("/d"))),
            ])
    }

    /// A list without a server is an error, because the check would otherwise succeed without testing
    /// anything.
    @Test(arguments: Form.allCases, [[], ["# a:1"], ["", "   "]])
    func aListWithoutServersIsAnError(form: Form, lines: [String]) throws {
        let failure = #expect(throws: Failure.self) {
            try InspectionTarget.targets(inList: form.text(lines), named: "list")
        }
        #expect(failure?.status == .usage)
        #expect(failure?.message == "\"list\" contains no servers")
    }

    @Test(arguments: Form.allCases) func aConfigurationFile(form: Form) throws {
        let lines = ["# comment", "listen = 80", "listen-tls", "route a=b:1", "proxy-in = any"]
        #expect(
            try ConfigurationFile.expand(["relay", "--config", "file"]) { _ in form.text(lines) }
                == ["relay", "--listen=80", "--listen-tls", "--route=a=b:1", "--proxy-in=any"])
    }

    @Test(arguments: Form.allCases) func aPreSharedKey(form: Form) throws {
        let path = try folder.write(form.text(["sensor:000102030405060708090A0b0C0d0E0f", "ignored"]), to: "key")
        let key = try #require(PreSharedKeyArgument(argument: "@\(path)")).key()
        #expect(key == (try TLSPreSharedKey(identity: "sensor", key: Array(0..<16))))
    }

    /// Blanks and empty lines are part of a passphrase, so they are not ignored.
    @Test(arguments: Form.allCases) func aPassphrase(form: Form) throws {
        let path = try folder.write(form.text(["two words", "ignored"]), to: "passphrase")
        let expected = form == .blankLines ? "" : form == .blanksAtTheEnds ? " \ttwo words\t " : "two words"
        #expect(try Passphrase(file: path).read(for: "key") == expected)
    }

    @Test func sessions() async throws {
        try folder.issue(.server(names: ["localhost"]), by: CertificateAuthority(), to: "server")
        let server = try await SockcatServer("listen --echo --tls --cert server.pem --key server.key localhost:0", in: folder)
        let command = "connect -v --tls --ca ca.pem --resume sessions localhost \(server.port)"
        _ = try await SockcatProcess.run(command, input: "hello", in: folder)
        for form in Form.allCases {
            let lines = try folder.text("sessions").utf8.split(separator: UInt8(ascii: "\n")).map { String(Substring($0)) }
            try folder.write(form.text(lines), to: "sessions")
            let outcome = try await SockcatProcess.run(command, input: "hello", in: folder)
            #expect(outcome.errors.contains(", resumed"), "\(form): \(outcome)")
        }
        await server.stop()
    }

    /// A comment must not hide the servers after it, nor the options.
    @Test func aCommentEndsAtASingleCarriageReturn() throws {
        let targets = try InspectionTarget.targets(inList: "a:1\r# comment\rb:2\r\n# comment\rc:3", named: "list")
        #expect(targets.count == 3)
        #expect(
            try ConfigurationFile.expand(["relay", "--config", "file"]) { _ in "# comment\rlisten-tls\rproxy-in = a" }
                == ["relay", "--listen-tls", "--proxy-in=a"])
    }
}

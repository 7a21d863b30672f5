import ArgumentParser
import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

/// An option on the command line replaces the option of the same name in a file.
@Suite(.timeLimit(.minutes(5))) struct ConfigurationPrecedenceTests {
    private func expand(_ arguments: [String], _ files: [String: String]) throws -> [String] {
        try ConfigurationFile.expand(["relay"] + arguments) { try #require(files[$0]) }
    }

    /// The names of the options of `relay` that may be repeated, from the parser itself.
    private static func repeatableOptions() async throws -> [String] {
        let outcome = try await SockcatProcess.shell("sockcat relay --experimental-dump-help", in: TestFolder())
        let help = try JSONDecoder().decode(DumpedHelp.self, from: Data(outcome.output.utf8))
        return help.command.arguments.filter { $0.kind == "option" && $0.isRepeating }.compactMap { $0.preferredName?.name }
    }

    private struct DumpedHelp: Decodable {
        struct Command: Decodable { let arguments: [Argument] }
        struct Argument: Decodable {
            struct Name: Decodable { let name: String }
            let kind: String
            let isRepeating: Bool
            let preferredName: Name?
        }
        let command: Command
    }

    @Test func theCommandLineReplacesEveryRepeatableOption() async throws {
        let names = try await Self.repeatableOptions()
        #expect(Set(names).isSuperset(of: ["proxy-in", "route", "alpn", "to-alpn", "to-pin"]))
        for name in names {
            let file = "\(name) = first\nlisten = 80\n\(name) = second\n"
            for spelling in [["--\(name)", "third"], ["--\(name)=third"]] {
                let twice = ["--config", "file"] + spelling + spelling
                #expect(try expand(twice, ["file": file]) == ["relay", "--listen=80"] + spelling + spelling)
                #expect(try expand(spelling + ["--config=file"], ["file": file]) == ["relay", "--listen=80"] + spelling)
            }
            #expect(
                try expand(["--config", "file"], ["file": file])
                    == ["relay", "--\(name)=first", "--listen=80", "--\(name)=second"])
        }
    }

    @Test func aLaterFileReplacesTheOptionsOfAnEarlierFile() throws {
        let files = ["a": "alpn = h2\nproxy-in = any\n", "b": "proxy-in = 10.0.0.0/8\n"]
        #expect(
            try expand(["--config", "a", "--config", "b"], files) == ["relay", "--alpn=h2", "--proxy-in=10.0.0.0/8"])
    }

    /// Only the same option is replaced: one name may begin with another.
    @Test func optionsWithSimilarNamesStay() throws {
        let file = "to = h:1\nto-alpn = h2\nalpn = h3\n"
        #expect(
            try expand(["--config", "file", "--to", "h:2"], ["file": file]) == [
                "relay", "--to-alpn=h2", "--alpn=h3", "--to", "h:2",
            ])
    }

    @Test func aFlagMayBeInTheFileAndOnTheCommandLine() throws {
        let arguments = try expand(
            ["--config", "file", "--listen-tls", "-v"], ["file": "listen = 80\nto = h:1\nlisten-tls\nverbose\n"])
        let relay = try #require(try Sockcat.parseAsRoot(arguments) as? Relay)
        #expect(relay.accepting.listenTls && relay.output.verbose)
    }

    @Test func theCommandLineNarrowsTheSourcesOfHeaders() async throws {
        let folder = try TestFolder()
        let echo = try LocalServer { socket in
            for try await bytes in socket.chunks { try await socket.write(bytes) }
        }
        try folder.write("listen = 127.0.0.1:0\nto = 127.0.0.1:\(echo.port)\nproxy-in = any\n", to: "relay.conf")
        for (option, isAccepted) in [("", true), ("--proxy-in 10.0.0.0/8", false), ("--proxy-in=127.0.0.0/8", true)] {
            let relay = try await SockcatServer("relay --config relay.conf \(option)", in: folder)
            #expect(try await Self.reply(from: relay) == (isAccepted ? "hello" : nil), "\(option)")
            await relay.stop()
        }
    }

    /// Sends a header and a line. Returns the reply, or `nil` if the connection is rejected, which may happen
    /// before the line is sent.
    private static func reply(from relay: SockcatServer) async throws -> String? {
        let client = AsyncSocket()
        defer { client.disconnect() }
        try await client.connect(to: "127.0.0.1", port: relay.port)
        do {
            try await client.write(.local, as: .version2)
            try await client.writeLine("hello")
            return try await client.readLine()
        } catch let error as AsyncSocketError where error.code == .connectionReset {
            return nil
        }
    }
}

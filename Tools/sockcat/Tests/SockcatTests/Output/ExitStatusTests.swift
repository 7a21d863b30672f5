import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// The exit codes of real runs, and the table in the manual.
@Suite(.timeLimit(.minutes(3))) struct ExitStatusTests {
    let folder: TestFolder

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
        try folder.issue(.client(commonName: "ada"), by: authority, to: "client")
    }

    /// One row of the table in the manual: | code | meaning | example |.
    private struct Row {
        var code: Int32
        var command: String
    }

    private static var rows: [Row] {
        get throws {
            let document = URL(filePath: #filePath).deletingLastPathComponent()
                .appending(path: "../../../../../Documentation/sockcat.md")
            let text = try String(contentsOf: document, encoding: .utf8)
            return text.split(separator: "\n").compactMap { line in
                guard let match = line.wholeMatch(of: #/\| (\d+) \| .* \| `(.*)` \|/#), let code = Int32(match.1) else {
                    return nil
                }
                return Row(code: code, command: String(match.2).replacing("\\|", with: "|"))
            }
        }
    }

    /// The examples use a TLS server on port 7000.
    @Test func theExamplesOfTheManualHaveTheirCodes() async throws {
        _ = try await SockcatProcess.shell(
            "sockcat certificate authority --force; sockcat certificate server localhost 127.0.0.1", in: folder)
        let server = try await SockcatServer(
            "listen --echo --tls --cert localhost.pem --key localhost-key.pem localhost:0", in: folder)
        let relay = try await SockcatServer("relay --listen localhost:0 --to localhost:1", in: folder)
        let rows = try Self.rows
        #expect(Set(rows.map(\.code)) == Set(ExitStatus.allCases.map(\.rawValue)))
        for row in rows {
            let command = row.command.replacing("7000", with: "\(server.port)").replacing("7009", with: "\(relay.port)")
            // A file, because timeout(1) and pipes need a program rather than a function of the shell.
            try folder.write("PATH=\(SockcatProcess.folder):$PATH; \(command)", to: "example")
            let outcome = try await SockcatProcess.shell("bash example </dev/null", in: folder)
            #expect(outcome.status == row.code, "\(command): \(outcome)")
        }
        await relay.stop()
        await server.stop()
    }

    @Test(arguments: [
        "connect --tls --ca ca.pem --keylog /proc/none/keys localhost 7000",
        "bench handshakes --ca ca.pem --keylog /proc/none/keys --count 1 localhost 7000",
        "listen --tls --cert server.pem --key server.key --keylog /proc/none/keys localhost:0",
        "connect --tls --ca ca.pem --cert none.pem localhost 7000", "connect --tls --ca none.pem localhost 7000",
        "certificate server localhost --self-signed --directory /proc/none", "inspect --hosts none",
        "relay --config none", "inspect server.pem >/dev/full", "inspect server.pem --json >/dev/full", "--help >/dev/full",
        "bench requests --send x --response-bytes 1 --count 1 --tls --ca ca.pem localhost 7000 >/dev/full",
        "connect --tls --ca ca.pem localhost 7000 >/dev/full <server.pem",
    ]) func filesThatCannotBeUsed(arguments: String) async throws {
        let server = try await SockcatServer("listen --echo --tls --cert server.pem --key server.key localhost:0", in: folder)
        let outcome = try await SockcatProcess.shell(
            "sockcat \(arguments.replacing("7000", with: "\(server.port)"))", in: folder)
        #expect(outcome.status == ExitStatus.fileFailed.rawValue, "\(outcome)")
        #expect(outcome.errors.hasPrefix("sockcat: ") || outcome.output.contains("failed: "), "\(outcome)")
        await server.stop()
    }

    /// A file system of this size has no space for a key.
    @Test func aFullDiskIsReported() async throws {
        let outcome = try await SockcatProcess.shell(
            "(ulimit -f 0; trap '' XFSZ; sockcat certificate server localhost --self-signed 2>&1)", in: folder)
        #expect(outcome.status == ExitStatus.fileFailed.rawValue, "\(outcome)")
        #expect(outcome.output.hasPrefix("sockcat: cannot write \"localhost.pem"), "\(outcome)")
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        #expect(!names.contains { $0.hasPrefix("localhost") }, "\(names)")
    }

    /// Each command, with each of the three standard descriptors closed. Without them, descriptors of the
    /// event loops and connections would be used as input and output.
    @Test(arguments: ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]) func closedDescriptorsAreNotReused(closing: String) async throws {
        let server = try await SockcatServer("listen --echo --tls --cert server.pem --key server.key localhost:0", in: folder)
        let commands = [
            "connect --tls --ca ca.pem localhost \(server.port)", "inspect --ca ca.pem --no-probes localhost:\(server.port)",
            "inspect server.pem", "certificate server a.example --self-signed --force", "listen unix:socket",
            "bench handshakes --ca ca.pem --count 2 localhost \(server.port)", "relay --listen localhost:0 --to localhost:1",
        ]
        for command in commands {
            let isServer = command.hasPrefix("listen") || command.hasPrefix("relay")
            let limit = isServer ? "timeout -k 60 2" : "timeout -s KILL 60"
            let outcome = try await SockcatProcess.shell(
                "echo hello | (exec \(limit) \(SockcatProcess.path) \(command) \(closing))", in: folder)
            #expect(outcome.status != 137, "\(command) \(closing) did not end")
            #expect(
                isServer || outcome.status == 0 || outcome.status == ExitStatus.fileFailed.rawValue,
                "\(command) \(closing): \(outcome)")
        }
        await server.stop()
    }

    @Test func undeliveredDatagramsAreAFailure() async throws {
        let outcome = try await SockcatProcess.shell(
            "printf 'one\\ntwo\\n' | sockcat connect --udp --linger 2s 127.0.0.1 \(try Self.unusedPort())", in: folder)
        #expect(outcome.status == ExitStatus.connectionLost.rawValue, "\(outcome)")
        #expect(outcome.errors.hasSuffix("sockcat: 2 datagrams were not delivered\n"), "\(outcome)")
    }

    /// The server is killed after half of the datagrams.
    @Test func datagramsAfterTheEndOfTheServerAreAFailure() async throws {
        let server = try await OpenSSLServer("-dtls", in: folder)
        let client = try DatagramClient(of: server.port, in: folder)
        try await client.send("one\ntwo\n")
        _ = try await server.line(containing: "two")
        await server.kill()
        for text in ["three\n", "four\n", "five\n"] {
            try await client.send(text)
            try await client.line(containing: "not delivered: send: 127.0.0.1:\(server.port): connection refused")
        }
        client.endInput()
        try await client.line(containing: "sockcat: 3 datagrams were not delivered")
        #expect(await client.ended() == ExitStatus.connectionLost.rawValue)
    }

    /// The server closes the session, so the rest of the input cannot be sent.
    @Test func inputAfterTheEndOfTheSessionIsAFailure() async throws {
        let server = try await SockcatServer("listen --dtls --cert server.pem --key server.key localhost:0", in: folder)
        let client = try DatagramClient(of: server.port, in: folder)
        try await client.send("one\n")
        try await client.line(containing: "secure: ")
        await server.stop()
        try await client.send("two\n")
        try await client.line(containing: "sockcat: read: the peer closed the connection")
        #expect(await client.ended() == ExitStatus.connectionLost.rawValue)
    }

    /// Without more input, the end of the session is not a failure.
    @Test func theEndOfTheSessionAfterTheInputIsASuccess() async throws {
        let server = try await SockcatServer("listen --echo --dtls --cert server.pem --key server.key localhost:0", in: folder)
        let client = try DatagramClient(of: server.port, in: folder)
        try await client.send("one\n")
        try await client.line(containing: "one")
        client.endInput()
        await server.stop()
        let status = await client.ended()
        #expect(status == 0)
    }

    private static func unusedPort() throws -> Int {
        Int(try SocketListener(port: 0, interface: "127.0.0.1").localPort)
    }
}

import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

@Suite(.timeLimit(.minutes(2))) struct ConnectTests {
    let folder: TestFolder

    init() throws { folder = try TestFolder() }

    @Test func aProxyThatIsDownIsNamed() async throws {
        for url in ["socks5://127.0.0.1:1", "http://127.0.0.1:1"] {
            let outcome = try await SockcatProcess.run("connect --proxy \(url) target.example 80", in: folder)
            #expect(outcome.status == ExitStatus.connectFailed.rawValue)
            #expect(outcome.errors.hasPrefix("sockcat: proxy 127.0.0.1:1: connect: "), "\(outcome)")
        }
    }

    @Test func theEndOfTheInputIsAHalfClose() async throws {
        let server = try await SockcatServer("listen --exec 'cat; echo end' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "hello\n", in: folder)
        #expect(outcome == .init(status: 0, output: "hello\nend\n", errors: ""))
        await server.stop()
    }

    @Test(arguments: ["", "--tls"]) func aHundredMegabytesArriveUnchangedBothWays(tls: String) async throws {
        let server = try await SockcatServer("listen --echo \(tls) 127.0.0.1:0", in: folder)
        let file = try folder.writeRandomBytes(100_000_000, to: "data")
        let trust = tls.isEmpty ? "" : "--insecure"
        let outcome = try await SockcatProcess.shell(
            "cat \(file) | sockcat connect \(tls) \(trust) 127.0.0.1 \(server.port) | cmp - \(file) && echo same", in: folder)
        #expect(outcome.output == "same\n")
        await server.stop()
    }

    @Test func linesEndWithCRLFIfRequested() async throws {
        let server = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run(
            "connect --crlf 127.0.0.1:\(server.port)", input: "a\nb\r\n", in: folder)
        #expect(Array(outcome.output.utf8) == Array("a\r\nb\r\n".utf8))
        await server.stop()
    }

    @Test func unixDomainSocketsAreReached() async throws {
        let server = try await SockcatServer("listen --echo unix:socket", in: folder)
        let outcome = try await SockcatProcess.run("connect unix:socket", input: "hello", in: folder)
        #expect(outcome.output == "hello")
        await server.stop()
    }

    @Test func datagramsAreLinesOfTheInput() async throws {
        let server = try await SockcatServer("listen --udp --echo 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run(
            "connect --udp --linger 300ms 127.0.0.1 \(server.port)", input: "a\nb", in: folder)
        #expect(outcome.output == "a\nb")
        await server.stop()
    }

    @Test func anOptionShowsTheProgress() async throws {
        let server = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run(
            "connect --progress 127.0.0.1 \(server.port)", input: "hello", in: folder)
        #expect(outcome.errors.hasPrefix("sent 5 bytes of 5 bytes (100 %), "))
        #expect(outcome.errors.contains("; received 5 bytes, "))
        await server.stop()
    }
}

@Suite(.timeLimit(.minutes(1))) struct ConnectFailureTests {
    let folder: TestFolder

    init() throws { folder = try TestFolder() }

    @Test func aRefusedConnectionHasAHintAndItsOwnExitCode() async throws {
        let port = try await unusedPort()
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(port)", in: folder)
        #expect(outcome.status == ExitStatus.connectFailed.rawValue)
        #expect(outcome.errors.contains("connection refused"))
        #expect(outcome.errors.contains("\nhint: check that a server is listening on this port\n"))
    }

    @Test func aClosedOutputEndsTheProgramSilently() async throws {
        let server = try await SockcatServer("listen --exec 'yes' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.shell(
            "{ sockcat connect 127.0.0.1 \(server.port); echo $? > code; } | head -n 1", in: folder)
        #expect(outcome == .init(status: 0, output: "y\n", errors: ""))
        #expect(try folder.text("code") == "141\n")
        await server.stop()
    }

    @Test func aFullDiskIsAnError() async throws {
        let server = try await SockcatServer("listen --exec 'yes' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.shell("sockcat connect 127.0.0.1 \(server.port) > /dev/full", in: folder)
        #expect(outcome.status == ExitStatus.fileFailed.rawValue)
        #expect(outcome.errors.contains("cannot write standard output: no space left on device\nhint: free some space"))
        await server.stop()
    }

    @Test func dataBeforeAFailedUploadIsPrinted() async throws {
        let server = try await SockcatServer("listen --exec 'echo early' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.shell(
            "yes | head -c 50000000 | sockcat connect 127.0.0.1 \(server.port)", in: folder)
        #expect(outcome.output == "early\n")
        await server.stop()
    }

    @Test func aSilentServerExceedsTheTimeLimit() async throws {
        let server = try await SockcatServer("listen --exec 'cat > /dev/null' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run("connect --tls --timeout 200ms 127.0.0.1 \(server.port)", in: folder)
        #expect(outcome.status == ExitStatus.timedOut.rawValue)
        await server.stop()
    }

    @Test(arguments: [SIGINT, SIGTERM]) func signalsEndTheProgram(number: Int32) async throws {
        let server = try await SockcatServer("listen --exec 'echo ready; cat' 127.0.0.1:0", in: folder)
        let program = try ChildProcess(shell: "exec \(SockcatProcess.path) connect 127.0.0.1 \(server.port)", environment: [:])
        #expect(try await program.output.read() == Data("ready\n".utf8))
        program.send(number)
        #expect(await program.wait() == 128 + number)
        await server.stop()
    }

    @Test func invalidArgumentsHaveTheExitCodeOfUsageErrors() async throws {
        for arguments in ["connect", "connect host 0", "connect --sni a host 1", "connect --tls --udp --starttls imap host 1"] {
            #expect(try await SockcatProcess.run(arguments, in: folder).status == 64, "\(arguments)")
        }
    }

    /// The reply arrives while the end of the input is processed.
    @Test func theReplyToTheLastDatagramIsPrinted() async throws {
        let server = try await SockcatServer("listen --udp --echo 127.0.0.1:0", in: folder)
        for _ in 0..<30 {
            let outcome = try await SockcatProcess.run(
                "connect --udp --linger 300ms 127.0.0.1 \(server.port)", input: "a\n", in: folder)
            #expect(outcome.output == "a\n")
        }
        await server.stop()
    }

    /// A port on which nothing listens, until another program binds it.
    private func unusedPort() async throws -> UInt16 {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        defer { listener.beginClosing(timeout: .zero) }
        return listener.localPort
    }
}

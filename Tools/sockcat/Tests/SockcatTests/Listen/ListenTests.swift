import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

@Suite(.timeLimit(.minutes(1))) struct ListenTests {
    let folder: TestFolder

    init() throws { folder = try TestFolder() }

    @Test func withoutAModeTheServerTalksToOneClientAndExits() async throws {
        try folder.write("question", to: "question")
        let server = try await SockcatServer("listen 127.0.0.1:0 < question", in: folder, output: "received")
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "answer", in: folder)
        #expect(outcome.output == "question")
        #expect(await server.ended() == 0)
        #expect(try folder.text("received") == "answer")
    }

    /// The first client uses up the only permit, as intended.
    @Test func aSingleClientCausesNoWarning() async throws {
        let command = "sockcat listen 127.0.0.1:0 < /dev/null"
        let server = try ChildProcess(
            shell: "cd \(folder.path); sockcat() { \(SockcatProcess.path) \"$@\"; }; \(command) 2>&1", environment: [:])
        let lines = LineReader(server.output)
        let port = try await lines.line(containing: "listening on ").split(separator: ":").last ?? ""
        #expect(try await SockcatProcess.run("connect 127.0.0.1 \(port)", input: "hello\n", in: folder).status == 0)
        #expect(try await lines.next() == "hello")
        #expect(try await lines.next() == nil)
        #expect(await server.wait() == 0)
    }

    @Test func whatClientsSendIsPrinted() async throws {
        let server = try await SockcatServer("listen --keep-open 127.0.0.1:0", in: folder, output: "received")
        for _ in 1...2 {
            #expect(try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "hello ", in: folder).status == 0)
        }
        #expect(await server.stop() == 0)
        #expect(try folder.text("received") == "hello hello ")
    }

    @Test func aCommandReceivesTheConnectionAndTheAddressOfTheClient() async throws {
        let server = try await SockcatServer("listen --exec 'tr a-z A-Z; echo $SOCKCAT_PEER' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "hello ", in: folder)
        #expect(outcome.output.hasPrefix("HELLO 127.0.0.1:"))
        await server.stop()
    }

    @Test func aCommandMayIgnoreItsInput() async throws {
        let server = try await SockcatServer("listen --exec 'exec < /dev/null; echo reply' 127.0.0.1:0", in: folder)
        let outcome = try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "ignored", in: folder)
        #expect(outcome.output == "reply\n")
        await server.stop()
    }

    @Test func aCommandIsTerminatedWhenItsClientVanishes() async throws {
        let server = try await SockcatServer(
            "listen --exec 'trap \"echo gone >> ended\" TERM; echo ready; cat > /dev/null; read line < pipe' 127.0.0.1:0",
            in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: server.port)
        #expect(try await client.readLine() == "ready")
        try client.setOption(.linger, to: .zero)
        client.disconnect()
        #expect(try await server.line(containing: "127.0.0.1").contains("reset"))
        await server.stop()
    }

    @Test func aCommandThatDoesNotReadIsTerminatedToo() async throws {
        let server = try await SockcatServer("listen --exec yes 127.0.0.1:0", in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: server.port)
        #expect(try await client.readLine() == "y")
        // More than the pipe and the sockets hold.
        let upload = Task { try await client.write(Data(count: 50_000_000)) }
        try client.setOption(.linger, to: .zero)
        client.disconnect()
        _ = await upload.result
        _ = try await server.line(containing: "reset")
        #expect(await server.stop() == 0)
    }

    @Test func aSecondSignalClosesConnectionsImmediately() async throws {
        let server = try await SockcatServer(
            "listen -v --grace 1h --exec 'trap : TERM; echo ready; cat' 127.0.0.1:0", in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: server.port)
        #expect(try await client.readLine() == "ready")
        server.terminate()
        _ = try await server.line(containing: "shutting down")
        server.terminate()
        #expect(await server.ended() == 0)
    }

    @Test func connectionsEndGracefullyAfterASignal() async throws {
        let server = try await SockcatServer("listen --echo 127.0.0.1:0", in: folder)
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: server.port)
        try await client.writeLine("before")
        #expect(try await client.readLine() == "before")
        server.terminate()
        try await client.writeLine("after")
        #expect(try await client.readLine() == "after")
        try await client.close()
        #expect(await server.ended() == 0)
    }

    @Test func aFullDiskEndsTheServer() async throws {
        let server = try await SockcatServer("listen --keep-open 127.0.0.1:0", in: folder, output: "/dev/full")
        _ = try await SockcatProcess.run("connect 127.0.0.1 \(server.port)", input: "hello", in: folder)
        #expect(await server.ended() == ExitStatus.fileFailed.rawValue)
    }
}

/// `listen systemd` uses the sockets that a service manager passes. `systemd-socket-activate` starts the
/// program with the first client or datagram.
@Suite(.timeLimit(.minutes(5))) struct SocketActivationTests {
    @Test(arguments: [("systemd", "", ""), ("systemd:chat", "--fdname=chat", ""), ("systemd", "-d", "--udp")])
    func thePassedSocketIsServed(address: String, activation: String, options: String) async throws {
        let port = options.isEmpty ? try freePort() : try freeDatagramPort()
        let child = try ChildProcess(
            shell: "exec systemd-socket-activate \(activation) -l 127.0.0.1:\(port) \(SockcatProcess.path) listen --echo "
                + "\(options) \(address) 2>&1", environment: [:])
        let lines = LineReader(child.output)
        _ = try await lines.line(containing: "Listening on")
        let client = try ChildProcess(
            shell: "exec \(SockcatProcess.path) connect \(options) --linger 1h 127.0.0.1 \(port)", environment: [:])
        try await client.input.write(Data("hello\n".utf8))
        _ = try await LineReader(client.output).line(containing: "hello")
        client.terminate()
        _ = await client.wait()
        _ = try await lines.line(containing: "listening on 127.0.0.1:\(port)")
        child.send(SIGTERM)
        #expect(await child.wait() == 0)
    }

    /// Another program may take the port before it is used, which is unlikely.
    private func freePort() throws -> UInt16 { try SocketListener(port: 0, interface: "127.0.0.1").localPort }

    private func freeDatagramPort() throws -> UInt16 { try DatagramListener(port: 0, interface: "127.0.0.1").localPort }

    @Test(arguments: ["listen --echo systemd", "listen --udp systemd", "relay --to a:1 --listen systemd:name"])
    func withoutAServiceManagerItFails(arguments: String) async throws {
        let outcome = try await SockcatProcess.run(arguments, in: TestFolder())
        #expect(outcome.status == ExitStatus.failure.rawValue)
        #expect(outcome.errors.contains("the service manager passed no socket"), "\(outcome.errors)")
    }
}

/// The line "listening on" names every open address.
@Suite(.timeLimit(.minutes(5))) struct ListeningAddressTests {
    @Test(arguments: ["listen --echo", "listen --echo --udp", "relay --to localhost:1 --listen"])
    func everyOpenAddressIsPrinted(command: String) async throws {
        let server = try await SockcatServer("\(command) localhost:0", in: TestFolder())
        let line = try #require(server.banner.last)
        for (host, text) in [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")] {
            let isOpen = try Self.isOpen(host, server.port, isDatagram: command.contains("udp"))
            #expect(isOpen == line.contains(" \(text):\(server.port)"), "\(line)")
        }
        #expect(line.hasPrefix("listening on 127.0.0.1:\(server.port)"))
        await server.stop()
    }

    /// Without a host, clients can connect from anywhere, and the server says so.
    @Test(arguments: ["listen --echo 0", "listen --echo --udp :0"]) func anOpenServerSaysSo(command: String) async throws {
        let open = try await SockcatServer(command, in: TestFolder())
        #expect(
            open.banner.first
                == "other hosts can connect: to accept only connections from this host, listen on localhost:\(open.port)")
        await open.stop()
        let local = try await SockcatServer("listen --echo 127.0.0.1:0", in: TestFolder())
        #expect(local.banner.count == 1)
        await local.stop()
    }

    /// Whether another socket has the address.
    private static func isOpen(_ host: String, _ port: Int, isDatagram: Bool) throws -> Bool {
        do {
            if isDatagram {
                _ = try DatagramListener(port: UInt16(port), interface: host)
            } else {
                _ = try SocketListener(port: UInt16(port), interface: host)
            }
            return false
        } catch {
            return (error as? AsyncSocketError)?.errno == EADDRINUSE
        }
    }
}

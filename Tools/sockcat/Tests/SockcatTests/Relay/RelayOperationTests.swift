import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// Relays that replace each other, report their state and limit their clients.
@Suite(.timeLimit(.minutes(5))) struct RelayOperationTests {
    private let folder: TestFolder

    init() throws { folder = try TestFolder() }

    /// A server that sends each line back.
    private func echoing(_ test: (_ port: UInt16) async throws -> Void) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        async let serving: Void = listener.run { socket in
            for try await line in socket.lines { try await socket.writeLine(line) }
        }
        try await test(listener.localPort)
        await listener.close(timeout: .zero)
        try await serving
    }

    private func connected(to relay: SockcatServer) async throws -> AsyncSocket {
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: relay.port)
        return client
    }

    private func expectEcho(_ client: AsyncSocket) async throws {
        try await client.writeLine("hello")
        #expect(try await client.readLine(timeout: .seconds(60)) == "hello")
    }

    private func snapshot() async throws -> ServerSnapshot {
        let json = try await AsyncSocket.withConnection(toPath: folder.path("status")) { try await $0.readToEnd() }
        return try JSONDecoder().decode(ServerSnapshot.self, from: json)
    }

    @Test func aRelayIsReplacedWithoutLosingAConnection() async throws {
        try await echoing { port in
            let options = "--to 127.0.0.1:\(port) --hot-restart \(folder.path("restart")) --status unix:\(folder.path("status"))"
            let first = try await SockcatServer("relay --listen 127.0.0.1:0 \(options)", in: folder)
            let early = try await connected(to: first)
            try await expectEcho(early)
            #expect(try await snapshot() == ServerSnapshot(openCount: 1, acceptedCount: 1))
            let second = try await SockcatServer("relay --listen 127.0.0.1:0 \(options)", in: folder)
            #expect(second.port == first.port)
            #expect(try await first.line(containing: "taken over") == "another process has taken over")
            try await expectEcho(early)
            let late = try await connected(to: second)
            try await expectEcho(late)
            #expect(try await snapshot().acceptedCount == 1)
            try await early.close()
            #expect(await first.ended() == 0)
            try await late.close()
            #expect(await second.stop() == 0)
            for name in ["restart", "status"] { #expect(!FileManager.default.fileExists(atPath: folder.path(name))) }
        }
    }

    @Test func clientsAreLimited() async throws {
        try await echoing { port in
            let limits = "--max-connections-per-source 2 --max-rate-per-source 0.01 --status unix:\(folder.path("status"))"
            let relay = try await SockcatServer("relay --listen 127.0.0.1:0 --to 127.0.0.1:\(port) \(limits)", in: folder)
            let first = try await connected(to: relay)
            try await expectEcho(first)
            await #expect(throws: AsyncSocketError.self) {
                _ = try await connected(to: relay).read(timeout: .seconds(60))
            }
            var refused = ServerSnapshot.Refusals()
            refused.byRate = 1
            #expect(try await snapshot() == ServerSnapshot(openCount: 1, acceptedCount: 1, refused: refused))
        }
    }

    @Test func bytesAreLimited() async throws {
        try await echoing { port in
            let relay = try await SockcatServer(
                "relay --listen 127.0.0.1:0 --to 127.0.0.1:\(port) --max-bytes-per-second 100000", in: folder)
            let client = try await connected(to: relay)
            let line = String(repeating: ".", count: 998) + "\r\n"
            let data = Data(String(repeating: line, count: 150).utf8)
            let start = ContinuousClock.now
            async let echo = client.read(exactly: data.count, timeout: .seconds(60))
            try await client.write(data)
            #expect(try await echo == data)
            // A third of the bytes exceeds the burst.
            #expect(.now - start >= .milliseconds(400))
        }
    }

    @Test(arguments: [
        ("--max-connections-per-source 0", "--max-connections-per-source"), ("--max-rate-per-source 0", "--max-rate-per-source"),
        ("--max-bytes-per-second 0", "--max-bytes-per-second"),
        ("--max-rate-per-source nan", "--max-rate-per-source"), ("--status 8080", "--status"),
    ])
    func unusableOptionsAreRefused(_ options: String, _ name: String) async throws {
        let outcome = try await SockcatProcess.run("relay --listen 0 --to localhost:1 \(options)", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue && outcome.errors.contains(name))
    }

    @Test func aPathInUseIsAnError() async throws {
        try Data().write(to: URL(fileURLWithPath: folder.path("file")))
        let outcome = try await SockcatProcess.run(
            "relay --listen 127.0.0.1:0 --to localhost:1 --hot-restart \(folder.path("file"))", in: folder)
        #expect(outcome.status != 0 && outcome.errors.contains("file"))
    }
}

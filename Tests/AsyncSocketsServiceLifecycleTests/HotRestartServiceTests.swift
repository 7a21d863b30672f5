#if ServiceLifecycle
import AsyncSockets
import AsyncSocketsServiceLifecycle
import FoundationEssentials
import Logging
import ServiceLifecycle
import SocketTestTraits
import Testing

/// Two service groups, of which one takes over from the other.
@Suite(.timeLimit(.patient)) struct HotRestartServiceTests {
    private struct Process {
        let listener: SocketListener
        let group: ServiceGroup
        let running: Task<Void, any Error>

        /// - Parameter name: The reply to each line.
        init(_ name: String, path: String) async throws {
            let restart = try await HotRestart(path: path)
            let inherited = restart.descriptors(named: "service")
            let listener =
                try inherited.isEmpty
                ? SocketListener(port: 0, interface: "127.0.0.1") : SocketListener(inherited: inherited)
            try await restart.takeOver(["service": listener])
            let serving = SocketListenerService(listener) { socket in
                for try await _ in socket.lines { try await socket.writeLine(name) }
            }
            let services: [any Service] = [serving, HotRestartService(restart, closeTimeout: nil)]
            let group = ServiceGroup(
                configuration: ServiceGroupConfiguration(
                    services: services.map { .init(service: $0, successTerminationBehavior: .gracefullyShutdownGroup) },
                    logger: Logger(label: "test")))
            (self.listener, self.group) = (listener, group)
            running = Task { try await group.run() }
        }

        func client() async throws -> AsyncSocket {
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            return client
        }
    }

    private func reply(to client: AsyncSocket) async throws -> String? {
        try await client.writeLine("hello")
        return try await client.readLine()
    }

    @Test(arguments: [false, true]) func aGroupEndsWhenAnotherProcessTakesOver(hasConnection: Bool) async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(at: folder) }
        let path = folder.appendingPathComponent("restart").path
        let first = try await Process("first", path: path)
        let early = hasConnection ? try await first.client() : nil
        if let early { #expect(try await reply(to: early) == "first") }
        let second = try await Process("second", path: path)
        #expect(second.listener.localPort == first.listener.localPort)
        #expect(try await reply(to: second.client()) == "second")
        if let early {
            #expect(try await reply(to: early) == "first")
            try await early.close()
        }
        try await first.running.value
        await second.group.triggerGracefulShutdown()
        try await second.running.value
        #expect(!FileManager.default.fileExists(atPath: path))
    }
}
#endif

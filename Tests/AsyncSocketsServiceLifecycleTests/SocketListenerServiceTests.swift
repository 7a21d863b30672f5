#if ServiceLifecycle
import AsyncSockets
import AsyncSocketsServiceLifecycle
import ServiceLifecycle
import ServiceLifecycleTestKit
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct SocketListenerServiceTests {
    private static func echo(_ listener: SocketListener, closeTimeout: Duration? = nil) -> SocketListenerService {
        SocketListenerService(listener, closeTimeout: closeTimeout) { socket in
            for try await bytes in socket.chunks { try await socket.write(bytes) }
        }
    }

    private static func client(of listener: SocketListener) async throws -> AsyncSocket {
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        try await socket.write("hello\n")
        #expect(try await socket.readLine() == "hello")
        return socket
    }

    @Test func aGracefulShutdownLetsConnectionsFinish() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        try await testGracefulShutdown { trigger in
            async let running: Void = Self.echo(listener).run()
            let client = try await Self.client(of: listener)
            trigger.triggerGracefulShutdown()
            #expect(!listener.isListening)
            try await client.write("more\n")
            #expect(try await client.readLine() == "more")
            try await client.close()
            try await running
        }
    }

    @Test func aConnectionIsClosedWhenTheGracePeriodExpires() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let (failures, continuation) = AsyncStream<any Error>.makeStream()
        let service = SocketListenerService(listener, closeTimeout: .milliseconds(50)) { socket in
            do {
                for try await bytes in socket.chunks { try await socket.write(bytes) }
                Issue.record("the connection has ended before the client closed it")
            } catch {
                continuation.yield(error)
                throw error
            }
        }
        try await testGracefulShutdown { trigger in
            async let running: Void = service.run()
            let client = try await Self.client(of: listener)
            trigger.triggerGracefulShutdown()
            try await running
            // The client has not closed its side, so the service has closed the connection.
            #expect(await Self.hasEnded(client))
        }
        continuation.finish()
        var errors: [any Error] = []
        for await error in failures { errors.append(error) }
        #expect(errors.count == 1 && errors[0] is CancellationError, "\(errors)")
    }

    /// Returns whether a read reports the end of the connection or an error.
    private static func hasEnded(_ client: AsyncSocket) async -> Bool {
        do {
            return try await client.read() == nil
        } catch {
            return true
        }
    }

    @Test func aConnectionHearsOfTheShutdown() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let service = SocketListenerService(listener, closeTimeout: nil) { socket in
            try await cancelWhenGracefulShutdown {
                for try await bytes in socket.chunks { try await socket.write(bytes) }
            }
        }
        try await testGracefulShutdown { trigger in
            async let running: Void = service.run()
            let client = try await Self.client(of: listener)
            trigger.triggerGracefulShutdown()
            try await running
            #expect(await Self.hasEnded(client))
        }
    }

    @Test func aServiceGroupRunsIt() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let group = ServiceGroup(services: [Self.echo(listener)], logger: listener.logger)
        async let running: Void = group.run()
        let client = try await Self.client(of: listener)
        await group.triggerGracefulShutdown()
        try await client.close()
        try await running
    }

    @Test func cancellingTheServiceEndsItsConnections() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let running = Task { try await Self.echo(listener).run() }
        let client = try await Self.client(of: listener)
        running.cancel()
        await #expect(throws: CancellationError.self) { try await running.value }
        #expect(await Self.hasEnded(client))
    }
}
#endif

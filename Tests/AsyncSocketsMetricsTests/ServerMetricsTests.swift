#if Metrics
import AsyncSockets
import AsyncSocketsMetrics
import AsyncSocketsTesting
import MetricsTestKit
import SocketTestSupport
import SocketTestTraits
import Testing

/// Metrics of a listener with real connections.
@Suite(.timeLimit(.patient)) struct ServerMetricsTests {
    private let metrics = TestMetrics()

    private func expect(open: Double, accepted: Int64, refused: Int64) throws {
        let server = [("server", "echo")]
        #expect(try metrics.expectMeter("async_sockets_server_open", server).values.last == open)
        #expect(try metrics.expectCounter("async_sockets_server_accepted_total", server).totalValue == accepted)
        let bySource = server + [("reason", "source")]
        #expect(try metrics.expectCounter("async_sockets_server_refused_total", bySource).totalValue == refused)
        let byRate = server + [("reason", "rate")]
        #expect(try metrics.expectCounter("async_sockets_server_refused_total", byRate).totalValue == 0)
    }

    /// Two records do not count a connection twice.
    @Test func aListenerIsRecorded() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        listener.maximumConnectionsPerSource = 1
        let server = ServerMetrics(of: listener, named: "echo", factory: metrics)
        let address = try #require(listener.localAddress)
        async let serving: Void = listener.run { socket in
            for try await bytes in socket.chunks { try await socket.write(bytes) }
        }
        try await AsyncSocket.withConnection(to: address) { socket in
            try await socket.writeLine("hello")
            #expect(try await socket.readLine() == "hello")
            await #expect(throws: AsyncSocketError.self) {
                try await AsyncSocket.withConnection(to: address) { _ = try await $0.read() }
            }
            try await eventually("it is closed") { listener.snapshot.openCount == 1 }
            for _ in 0..<2 {
                await server.record()
                try expect(open: 1, accepted: 1, refused: 1)
            }
        }
        try await eventually("it is closed") { listener.snapshot.openCount == 0 }
        await server.record()
        try expect(open: 0, accepted: 1, refused: 1)
        #expect(try metrics.expectMeter("async_sockets_server_pending_bytes", [("server", "echo")]).values.last == 0)
        #expect(try metrics.expectTimer("async_sockets_event_loop_latency", [("server", "echo")]).values.count >= 2)
        async let recording: Void = server.run(every: .patient)
        await listener.close()
        _ = try await (recording, serving)
    }
}
#endif

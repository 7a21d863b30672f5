import AsyncSocketsTesting
import FoundationEssentials
import Logging
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A listener's limits, and connections that wait because of them.
@Suite(.timeLimit(.patient)) struct ListenerLimitTests {
    private func listener(isSecure: Bool, maximumConnections: Int = .max) throws -> SocketListener {
        try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil,
            maximumConnections: maximumConnections, configure: { $0.logger = LogRecorder.logger(of: "listener limits") })
    }

    private func client(of listener: SocketListener) async throws -> AsyncSocket {
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        return client
    }

    private func expectEcho(_ client: AsyncSocket) async throws {
        try await client.write("hello\n")
        #expect(try await client.readLine() == "hello")
    }

    /// A higher limit admits the next connection, and a lower one does not close any.
    @Test func aLimitOfConnectionsMayChange() async throws {
        let listener = try listener(isSecure: false, maximumConnections: 1)
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            var clients = [try await client(of: listener)]
            try await expectEcho(clients[0])
            for limit in 2...3 {
                let refusals = listener.reception.quota.refusalCount
                clients.append(try await client(of: listener))
                try await eventually("it waits") { listener.reception.quota.refusalCount > refusals }
                listener.maximumConnections = limit
                try await eventually("it is served") { listener.reception.servedCount == limit }
                try await expectEcho(clients[limit - 1])
            }
            listener.maximumConnections = 1
            for client in clients { try await expectEcho(client) }
        }
        // The later pauses are within the same minute.
        let warnings = LogRecorder.warnings(of: "listener limits").filter { $0.metadata["listener"] == "\(address)" }
        // A listener without free descriptors also warns.
        #expect(warnings.compactMap { $0.metadata["limit"] } == ["1"])
    }

    /// No connection is accepted without a free handshake permit. Handshakes on a Unix-domain socket
    /// do not give way.
    @Test func theSequenceTakesNothingWithoutAFreeHandshake() async throws {
        let folder = try TemporaryFolder()
        let listener = try SocketListener(path: folder.path("listener"), tls: TestCertificates.server())
        listener.maximumHandshakes = 1
        let asking = Task {
            var iterator = listener.connections.makeAsyncIterator()
            return try await iterator.next()
        }
        try await eventually("it accepts") { listener.queue.isAwaited }
        let (address, slots) = (try #require(listener.localAddress), listener.preparation.slots)
        var silent: [RawSocket?] = [try .connected(to: address)]
        try await eventually("it shakes hands") { slots.takenCount == 1 }
        // Accepted if the accepting task has checked for a permit before the first connection took it.
        silent.append(try .connected(to: address))
        try await eventually("the accepting task waits behind all others") {
            slots.waitingCount == listener.reception.servedCount
        }
        let count = listener.reception.servedCount
        for _ in 0..<5 { silent.append(try .connected(to: address)) }
        try await eventually("they are accepted") { listener.reception.quota.openCount == 7 }
        // The accepting task runs on this loop, and has had the chance to accept them.
        for _ in 0..<3 { await Task(executorPreference: listener.reception.loop) {}.value }
        #expect(listener.reception.servedCount == count)
        for index in 0..<2 { silent[index] = nil }
        // 5, or 6 while the second connection, which is closed, waits for a permit that a silent one has.
        try await eventually("the others are taken") { listener.reception.servedCount >= 5 }
        await listener.close(timeout: .zero)
        #expect(try await asking.value == nil)
    }

    /// No further connections are accepted, so the waiting ones do not need to wait for permits.
    @Test func aShutdownLetsInThoseThatWaitForAPlace() async throws {
        let listener = try listener(isSecure: true)
        listener.maximumHandshakes = 1
        listener.listener.start()
        let clients = [try await client(of: listener), try await client(of: listener)]
        try await eventually("both are accepted") { listener.reception.quota.openCount == 2 }
        let running = Task { try await listener.run { try await $0.echo() } }
        try await eventually("one has the place") {
            listener.preparation.slots.takenCount == 1 && listener.reception.servedCount == 2
        }
        listener.beginClosing()
        try await eventually("both have one") { listener.preparation.slots.takenCount == 2 }
        for client in clients {
            try await client.startTLS(settings: .ofTests())
            try await expectEcho(client)
            try await client.close()
        }
        try await running.value
    }
}

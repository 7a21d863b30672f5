import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Shutting down a listener with tasks.
@Suite(.timeLimit(.patient)) struct SocketListenerEndTests {
    private static func listener(_ isSecure: Bool = false) throws -> SocketListener {
        try SocketListener(port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil)
    }

    /// Returns a client whose connection is being served.
    private static func client(of listener: SocketListener, _ isSecure: Bool = false) async throws -> AsyncSocket {
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort, tls: isSecure ? .ofTests() : nil)
        try await socket.write("hello\n")
        #expect(try await socket.readLine() == "hello")
        return socket
    }

    @Test(arguments: [false, true])
    func aShutdownWaitsForTheConnections(isSecure: Bool) async throws {
        let listener = try Self.listener(isSecure)
        let running = Task { try await listener.run { try await $0.echo() } }
        let client = try await Self.client(of: listener, isSecure)
        let address = try #require(listener.localAddress)
        let ending = Task { await listener.close() }
        try await eventually("the port is free") { !listener.isListening && (try? SocketListener(address: address)) != nil }
        // Open connections continue.
        try await client.write("more\n")
        #expect(try await client.readLine() == "more")
        try await client.close()
        await ending.value
        try await running.value
    }

    /// It must not wait for its own connection.
    @Test func aConnectionMayShutTheListenerDown() async throws {
        let listener = try Self.listener()
        let running = Task {
            try await listener.run { socket in
                let line = try await socket.readLine()
                #expect(line == "quit")
                await listener.close(timeout: .milliseconds(10))
            }
        }
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.write("quit\n")
        try await running.value
        #expect(try await client.read() == nil)
    }

    @Test func aShutdownCutsWhatTakesTooLong() async throws {
        let listener = try Self.listener()
        let errors = Findings<String>()
        let cancellations = Findings<Bool>()
        let running = Task {
            try await listener.run(onError: { error, _ in errors.add("\(error)") }) { socket in
                do {
                    try await socket.echo()
                } catch {
                    cancellations.add(Task.isCancelled)
                    throw error
                }
            }
        }
        let (quick, slow) = (try await Self.client(of: listener), try await Self.client(of: listener))
        listener.beginClosing()
        #expect(!listener.isListening)
        try await quick.close()
        try await eventually("one is left") { listener.reception.servedCount == 1 }
        // A later call can make the deadline earlier, but not later.
        listener.beginClosing(timeout: .seconds(3600))
        await listener.close(timeout: .milliseconds(50))
        try await running.value
        await #expect(throws: (any Error).self) { if try await slow.read() == nil { throw CancellationError() } }
        #expect(cancellations.all == [true])
        #expect(errors.all.allSatisfy { $0.contains("cancelled") })
    }

    /// The tasks run on the executor of the caller of `run`, and are cancelled through their group.
    @Test func aShutdownCutsTasksThatRunWithTheirCallerToo() async throws {
        let listener = try Self.listener()
        let running = Task { try await listener.run(executor: nil) { try await $0.echo() } }
        let clients = [try await Self.client(of: listener), try await Self.client(of: listener)]
        listener.beginClosing(timeout: .milliseconds(20))
        try await eventually("none is served") { listener.reception.servedCount == 0 }
        try await running.value
        for client in clients {
            await #expect(throws: (any Error).self) { if try await client.read() == nil { throw CancellationError() } }
        }
    }

    @Test func aCancelledShutdownCutsAtOnce() async throws {
        let listener = try Self.listener()
        let running = Task { try await listener.run { try await $0.echo() } }
        let client = try await Self.client(of: listener)
        let ending = Task { await listener.close() }
        try await eventually("accepting is over") { !listener.isListening }
        ending.cancel()
        await ending.value
        try await running.value
        withExtendedLifetime(client) {}
    }

    @Test(arguments: [false, true])
    func cancellingRunEndsEverything(isSecure: Bool) async throws {
        let listener = try Self.listener(isSecure)
        let running = Task { try await listener.run { try await $0.echo() } }
        let client = try await Self.client(of: listener, isSecure)
        // Another connection is in its handshake.
        let address = try #require(listener.localAddress)
        let silent = try RawSocket.connected(to: address)
        running.cancel()
        await #expect(throws: CancellationError.self) { try await running.value }
        #expect(!listener.isListening)
        await #expect(throws: (any Error).self) { if try await client.read() == nil { throw CancellationError() } }
        if isSecure { _ = try? silent.receiveAll() }
        await listener.close()
        _ = try SocketListener(address: address)
    }

    @Test func aTaskThatIsCancelledAlreadyServesNoOne() async throws {
        let listener = try Self.listener()
        let bodies = Findings<Bool>()
        let running = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            try await listener.run { _ in bodies.add(true) }
        }
        await #expect(throws: CancellationError.self) { try await running.value }
        #expect(bodies.all.isEmpty && !listener.isListening)
    }

    @Test func aListenerThatIsShutDownBeforeRunServesNoOne() async throws {
        let listener = try Self.listener()
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        await listener.close(timeout: .seconds(1))
        await listener.close()
        try await listener.run { try await $0.echo() }
        #expect((try? client.receive())?.isEmpty ?? true)
    }

    @Test func aListenerIsUsedOnce() async throws {
        let listener = try Self.listener()
        try await serving(listener, { try await $0.echo() }) { _ in
            let client = try await Self.client(of: listener)
            let second = await #expect(throws: AsyncSocketError.self) { try await listener.run { _ in } }
            #expect(second?.code == .badConfiguration)
            try await client.close()
        }
        let later = await #expect(throws: AsyncSocketError.self) { try await listener.run { _ in } }
        #expect(later?.code == .badConfiguration)
    }

    @Test func theLastReferenceEndsTheListener() async throws {
        var listener: SocketListener? = try Self.listener()
        let address = try #require(listener?.localAddress)
        let waiting = try RawSocket.connected(to: address)
        weak let inner = listener?.listener
        weak let reception = listener?.reception
        listener = nil
        _ = try? waiting.receiveAll()
        try await eventually("nothing is left") { inner == nil && reception == nil }
        _ = try SocketListener(address: address)
    }

    /// However a listener ends, every descriptor and registration is released.
    @Test func connectionsThatComeWhileItEndsAreClosed() async throws {
        for round in 0..<20 {
            let listener = try Self.listener()
            let address = try #require(listener.localAddress)
            let running = Task { try await listener.run { try await $0.echo() } }
            let clients = (0..<40).compactMap { _ in try? RawSocket.connected(to: address) }
            if round % 2 == 0 { running.cancel() } else { await listener.close(timeout: .zero) }
            _ = await running.result
            // Each is closed or reset. None is left open.
            for client in clients { _ = try? client.receiveAll() }
            try await eventually("all descriptors are closed") { listener.reception.quota.openCount == 0 }
        }
    }
}

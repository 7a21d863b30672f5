import AsyncSocketsTesting
import FoundationEssentials
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A listener's sequence of connections.
@Suite(.timeLimit(.patient)) struct SocketListenerSequenceTests {
    private static func listener(_ isSecure: Bool = false, maximumConnections: Int = .max) throws -> SocketListener {
        try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil,
            maximumConnections: maximumConnections)
    }

    @Test(arguments: [false, true])
    func theSocketsAreReadyAndOutliveTheListener(isSecure: Bool) async throws {
        let listener = try Self.listener(isSecure)
        let port = listener.localPort
        async let lines = withThrowingTaskGroup { group in
            for number in 0..<5 {
                group.addTask {
                    try await AsyncSocket.withConnection(
                        to: "127.0.0.1", port: port, tls: isSecure ? .ofTests() : nil
                    ) { socket in
                        try await socket.write("\(number)\n")
                        return try await socket.readLine()
                    }
                }
            }
            return try await group.reduce(into: []) { $0.append($1 ?? "") }.sorted()
        }
        var sockets: [AsyncSocket] = []
        for try await socket in listener.connections {
            #expect(socket.isSecure == isSecure)
            sockets.append(socket)
            if sockets.count == 5 { break }
        }
        await listener.close()
        for try await _ in listener.connections { Issue.record("a connection after the end") }
        for socket in sockets {
            let line = try await socket.readLine()
            try await socket.write("\(line ?? "")\n")
        }
        #expect(try await lines == ["0", "1", "2", "3", "4"])
    }

    @Test func aLoopThatIsLeftLosesNothing() async throws {
        let listener = try Self.listener()
        let address = try #require(listener.localAddress)
        let first = try RawSocket.connected(to: address)
        for try await socket in listener.connections {
            #expect(socket.connectedAddress == (try first.localAddress))
            break
        }
        let second = try RawSocket.connected(to: address)
        for try await socket in listener.connections {
            #expect(socket.connectedAddress == (try second.localAddress))
            break
        }
    }

    @Test func onlyABoundedNumberIsAcceptedAhead() async throws {
        let listener = try Self.listener()
        let address = try #require(listener.localAddress)
        var clients = [try RawSocket.connected(to: address)]
        var iterator = listener.connections.makeAsyncIterator()
        var sockets = [try await iterator.next()]
        // Sixteen are ready, plus the rest of a batch accepted with them, and 64 are pending.
        for _ in 0..<300 { clients.append(try RawSocket.connected(to: address)) }
        try await eventually("accepting pauses") { listener.reception.quota.refusalCount > 0 }
        #expect(listener.reception.quota.openCount <= 1 + 16 + 64 + 64)
        while sockets.count < clients.count { sockets.append(try await iterator.next()) }
        #expect(Set(sockets.compactMap { $0?.connectedPort }) == Set(try clients.map { try $0.localPort }))
    }

    @Test func aHandshakeThatNeverEndsHoldsUpNoElement() async throws {
        let listener = try Self.listener(true)
        let address = try #require(listener.localAddress)
        var clients: [RawSocket] = []
        for _ in 0..<100 { clients.append(try RawSocket.connected(to: address)) }
        async let client: Void = AsyncSocket.withConnection(to: address, tls: .ofTests()) { try await $0.write("x") }
        var iterator = listener.connections.makeAsyncIterator()
        let socket = try #require(try await iterator.next())
        #expect(try await socket.read() == Data("x"))
        try await client
        // The others are in their handshakes, for which a shutdown does not wait.
        await listener.close(timeout: .zero)
        for client in clients { _ = try? client.receiveAll() }
    }

    @Test func aCancelledTaskLeavesTheListenerAlone() async throws {
        let listener = try Self.listener()
        let waiting = Task {
            var iterator = listener.connections.makeAsyncIterator()
            return try await iterator.next()
        }
        try await eventually("it accepts") { listener.queue.isAwaited }
        waiting.cancel()
        await #expect(throws: CancellationError.self) { _ = try await waiting.value }
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        var iterator = listener.connections.makeAsyncIterator()
        let socket = try await iterator.next()
        #expect(socket?.connectedAddress == (try client.localAddress))
    }

    @Test func aShutdownEndsALoopThatWaits() async throws {
        let listener = try Self.listener()
        let waiting = Task {
            var count = 0
            for try await _ in listener.connections { count += 1 }
            return count
        }
        try await eventually("it accepts") { listener.queue.isAwaited }
        await listener.close()
        #expect(try await waiting.value == 0)
    }

    @Test func runAndTheSequenceExcludeEachOther() async throws {
        let listener = try Self.listener()
        try await serving(listener, { try await $0.echo() }) { _ in
            try await eventually("it runs") { listener.reception.isBegun }
            for _ in 0..<2 {
                let error = await #expect(throws: AsyncSocketError.self) {
                    for try await _ in listener.connections { return }
                }
                #expect(error?.code == .badConfiguration)
            }
        }
    }

    @Test func theLastReferenceEndsWhatIsUnderWay() async throws {
        var listener: SocketListener? = try Self.listener()
        let address = try #require(listener?.localAddress)
        let clients = [try RawSocket.connected(to: address), try .connected(to: address)]
        var iterator = listener?.connections.makeAsyncIterator()
        let socket = try #require(try await iterator?.next())
        iterator = nil
        listener = nil
        // The connection that was not consumed is closed. The other one continues.
        try await socket.write("hello\n")
        var texts: [String?] = []
        for client in clients {
            let isTaken = socket.connectedAddress == (try client.localAddress)
            texts.append(isTaken ? try client.receive(through: "\n") : try? client.receiveAll())
        }
        #expect(texts.contains("hello\n"))
        _ = try SocketListener(address: address)
    }
}

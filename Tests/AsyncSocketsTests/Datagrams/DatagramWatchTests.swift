import AsyncSocketsTesting
import Foundation
import Logging
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The observer of a UDP socket, and a delegate on the main actor.
@Suite(.timeLimit(.patient)) struct DatagramWatchTests {
    @Test func anObserverIsToldOfTheBeginningAndTheEndWithTheBytes() async throws {
        let (recorder, server) = (ObservationRecorder(), try AsyncUDPSocket.bound("127.0.0.1"))
        let client = AsyncUDPSocket()
        client.observer = recorder
        try await client.connect(to: server.address)
        try await client.send(Data(count: 1_000))
        let request = try await server.receive()
        try await server.send(Data(count: 30), inReplyTo: request)
        #expect(try await client.receive().data.count == 30)
        client.disconnect()
        let told = await recorder.untilEnds(1)
        guard case .began(let connection) = try #require(told.first) else { throw Unexpected(told) }
        #expect(told.count == 2 && connection.peer == server.localAddress && connection.role == .client)
        guard case .ended(connection, nil, let totals) = told[1] else { throw Unexpected(told) }
        #expect(totals.bytesSent == 1_000 && totals.bytesReceived == 30)
    }

    @Test func anObserverIsToldOfAConnectThatFails() async throws {
        let recorder = ObservationRecorder()
        let socket = AsyncUDPSocket()
        socket.observer = recorder
        socket.resolver = Resolver(concurrency: 1) { _ in .success([]) }
        let error = await #expect(throws: AsyncSocketError.self) { try await socket.connect(to: "some.example", port: 9) }
        guard case .connectFailed(let told?) = await recorder.next() else { throw Unexpected([]) }
        #expect(told.code == error?.code)
        socket.disconnect()
    }

    @Test func aSocketThatHasLostNothingLogsNoLoss() async throws {
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.logger = LogRecorder.logger(of: "no datagrams dropped")
        try socket.bind(toAddress: .loopback())
        try await socket.send(Data("secret".utf8), to: socket.address)
        #expect(try await socket.receive().data == Data("secret".utf8))
        socket.disconnect()
        #expect(try await recorder.closed() == nil)
        let lines = LogRecorder.lines("test", "no datagrams dropped")
        #expect(lines.allSatisfy { $0.level < .warning && !$0.message.contains("secret") })
    }

    @Test @MainActor func aDelegateOfTheMainActorIsCalledThere() async throws {
        let (told, telling) = AsyncStream<String>.makeStream()
        let watcher = MainActorWatcher(telling)
        let socket = AsyncUDPSocket(delegate: watcher)
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        try socket.beginReceiving()
        socket.send(Data("hello".utf8), toAddress: try socket.address, withTimeout: -1, tag: 7)
        var all: Set<String> = []
        for await word in told {
            all.insert(word)
            if all.count == 2 { socket.disconnect() }
            if word == "closed" { break }
        }
        #expect(all == ["sent 7", "received hello", "closed"])
    }

    private struct Unexpected: Error {
        let told: [Observed]
        init(_ told: [Observed]) { self.told = told }
    }
}

/// Not sendable, so it can be used only on the main actor.
@MainActor private final class MainActorWatcher {
    private let telling: AsyncStream<String>.Continuation

    init(_ telling: AsyncStream<String>.Continuation) {
        self.telling = telling
    }
}

extension MainActorWatcher: @MainActor AsyncUDPSocketDelegate {
    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) { telling.yield("sent \(tag)") }

    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        telling.yield("received \(String(decoding: datagram.data, as: UTF8.self))")
    }

    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) { telling.yield("closed") }
}
